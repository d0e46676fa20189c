// What fuzz targets are made of.
#pragma once
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace flexformer::tests {

inline void promise(bool kept, const char* what) {
  if (!kept) throw std::logic_error(std::string("broken promise: ") + what);
}

// The first bytes of an input, as numbers that choose something.
class Choices {
 public:
  explicit Choices(std::string_view& bytes) : bytes_(bytes) {}
  std::size_t below(std::size_t n) {
    if (bytes_.empty()) return 0;
    const std::size_t value = static_cast<unsigned char>(bytes_[0]);
    bytes_.remove_prefix(1);
    return value % n;
  }
  template <class T> T of(std::initializer_list<T> values) { return values.begin()[below(values.size())]; }

 private:
  std::string_view& bytes_;
};

inline std::vector<std::string_view> parts(std::string_view bytes) {
  constexpr std::string_view line = "\n===\n";
  std::vector<std::string_view> out;
  for (std::size_t end; (end = bytes.find(line)) != std::string_view::npos; bytes.remove_prefix(end + line.size()))
    out.push_back(bytes.substr(0, end));
  out.push_back(bytes);
  return out;
}

// Targets of fuzz_texts.cpp.
void text_file(std::string_view bytes);
void scored(std::string_view bytes);

}  // namespace flexformer::tests
