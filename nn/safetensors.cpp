// Reading goes in two passes: first the header is checked as a whole (names, types, shapes, and ranges that cover the
// elements without gap or overlap), then the tensors are made.
#include "nn/safetensors.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace flexformer {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are stored as they lie in memory");

using Json = nlohmann::ordered_json;
constexpr const char* metadata_key = "__metadata__";
constexpr const char* checksum_key = "checksum";
constexpr std::size_t length_bytes = 8;
constexpr int most_nested = 8;  // a tensor's sizes lie 3 deep

// FNV-1a, 64 bit.
class Checksum {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) h_ = (h_ ^ std::uint8_t(c)) * 0x100000001b3;
  }
  std::string hex() const {
    std::string digits(16, '0');
    char shortest[16];
    const char* end = std::to_chars(shortest, shortest + 16, h_, 16).ptr;
    std::copy(static_cast<const char*>(shortest), end, digits.end() - (end - shortest));
    return digits;
  }

 private:
  std::uint64_t h_ = 0xcbf29ce484222325;
};

std::string_view elements(const NamedTensor& item) {
  const Tensor& x = item.tensor;
  check("safetensors", x.dtype() != DType::bf16, "'", item.name, "' is bf16; only f32 and i32 can be written");
  const void* p = x.dtype() == DType::f32 ? static_cast<const void*>(x.data()) : x.ints();
  return {static_cast<const char*>(p), std::size_t(x.numel() * size_of(x.dtype()))};
}

// Blanks at its end make the elements start at a multiple of 8.
std::string header_of(const SafetensorsFile& file, const std::string& sum) {
  Json header;
  header[metadata_key] = file.metadata;
  header[metadata_key][checksum_key] = sum;
  std::size_t begin = 0;
  for (const NamedTensor& item : file.tensors) {
    check("safetensors", !header.contains(item.name), "there are two tensors called '", item.name, "'");
    Json shape = Json::array();
    for (int i = 0; i < item.tensor.rank(); ++i) shape.push_back(item.tensor.size(i));
    const std::size_t end = begin + elements(item).size();
    header[item.name] = {
        {"dtype", item.tensor.dtype() == DType::f32 ? "F32" : "I32"}, {"shape", shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  try {
    std::string out = header.dump();
    out.resize((out.size() + 7) / 8 * 8, ' ');
    return out;
  } catch (const Json::exception&) {
    fail("safetensors: a name or a metadata value is not UTF-8");
  }
}

}  // namespace

std::string write_safetensors(const SafetensorsFile& given) {
  SafetensorsFile file = given;  // tensors are handles: only what lies on a GPU is copied
  for (NamedTensor& item : file.tensors) item.tensor = item.tensor.to(Device::cpu);
  Checksum sum;
  std::size_t size = 0;
  for (const NamedTensor& item : file.tensors) {
    sum.add(elements(item));
    size += elements(item).size();
  }
  const std::string header = header_of(file, sum.hex());
  const std::uint64_t length = header.size();
  std::string bytes(length_bytes, '\0');
  std::memcpy(bytes.data(), &length, length_bytes);
  bytes.reserve(length_bytes + header.size() + size);
  bytes += header;
  for (const NamedTensor& item : file.tensors) bytes += elements(item);
  return bytes;
}

namespace {

template <class T> T stored(const char* from) {
  T x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

float from_bf16(const char* from) { return std::bit_cast<float>(std::uint32_t(stored<std::uint16_t>(from)) << 16); }
float from_f64(const char* from) { return float(stored<double>(from)); }

float from_f16(const char* from) {
  const auto x = stored<std::uint16_t>(from);
  const int exponent = (x >> 10) & 31, fraction = x & 1023;
  float magnitude;
  if (exponent == 31)
    magnitude = fraction ? std::nanf("") : HUGE_VALF;
  else
    magnitude = std::ldexp(float(exponent ? fraction + 1024 : fraction), std::max(exponent, 1) - 25);
  return x & 0x8000 ? -magnitude : magnitude;
}

struct StoredType {
  const char* name;
  std::size_t size;
  DType dtype;                              // in memory
  float (*convert)(const char*) = nullptr;  // where it is not stored as it lies in memory
};
constexpr StoredType stored_types[] = {{"F32", 4, DType::f32},
                                       {"I32", 4, DType::i32},
                                       {"BF16", 2, DType::f32, from_bf16},
                                       {"F16", 2, DType::f32, from_f16},
                                       {"F64", 8, DType::f32, from_f64}};

// Bytes of an element of any type, by its name: "U8", "F8_E4M3", "I64", "BOOL"; 0 if it does not say.
std::size_t bytes_of(const std::string& type) {
  if (type == "BOOL") return 1;
  const std::size_t digits = std::min(type.find_first_of("0123456789"), type.size());
  std::size_t bits = 0;
  std::from_chars(type.data() + digits, type.data() + type.size(), bits);
  return bits % 8 ? 0 : bits / 8;
}

// What a message quotes of a file: one line of ASCII, and not too much of it.
std::string shown(const nlohmann::json& value) {
  constexpr std::size_t most = 200;
  std::string line = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (line.size() > most) line.replace(most, std::string::npos, "...");
  return line;
}
std::string escaped(const std::string& text) {
  const std::string line = shown(text);
  return line.substr(1, line.size() - (line.ends_with('"') ? 2 : 1));
}
std::string named(const std::string& name) { return text("'", escaped(name), "'"); }

// Goes through a header before it is parsed, and stops at what no sound one has: a name that comes twice, and a depth
// that recursions would have to follow. It also keeps the order of the names at the top, for the parsed objects are
// sorted: only so is a header of many names read in no quadratic time.
struct HeaderNames final : nlohmann::json_sax<nlohmann::json> {
  std::vector<std::string> order;
  std::string fault;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return open_.pop_back(), true; }
  bool end_array() override { return open_.pop_back(), true; }
  bool key(std::string& name) override {
    if (!open_.back().insert(name).second) return stop(text("the name ", named(name), " comes twice"));
    if (open_.size() == 1) order.push_back(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    return stop(text("its header is no JSON: ", escaped(error.what())));
  }

 private:
  bool stop(std::string what) {
    fault = std::move(what);
    return false;
  }
  bool open() {
    if (int(open_.size()) == most_nested)
      return stop(text("its header is nested deeper than ", most_nested, " levels"));
    open_.emplace_back();
    return true;
  }
  std::vector<std::set<std::string>> open_;  // the names of each object that is open
};

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  SafetensorsFile read(std::vector<UnreadTensor>* unread) {
    const nlohmann::json header = parse_header();
    SafetensorsFile file;
    for (const std::string& name : order_) {
      const nlohmann::json& value = header[name];
      if (name == metadata_key)
        read_metadata(value, file);
      else
        entries_.push_back(entry(name, value));
    }
    verify_ranges();
    verify_checksum(file);
    for (const Entry& e : entries_) {
      if (e.unread.empty()) {
        file.tensors.push_back({e.name, tensor(e)});
        continue;
      }
      if (!unread) fail(source_, ": tensor ", named(e.name), " cannot be used: ", e.unread);
      unread->push_back({e.name, e.type_name, e.unread});
    }
    return file;
  }

 private:
  struct Entry {
    std::string name;
    const StoredType* type;  // null: it cannot be read
    Shape shape;
    std::size_t begin, end;
    std::string type_name, unread;  // why it cannot be read
  };

  template <class... Parts> [[noreturn]] void damaged(const Parts&... parts) const {
    fail(source_, ": not a sound safetensors file: ", parts...);
  }

  nlohmann::json parse_header() {
    if (bytes_.size() < length_bytes) damaged("it has ", bytes_.size(), " bytes, too few for a header");
    std::uint64_t length;
    std::memcpy(&length, bytes_.data(), length_bytes);
    if (length == 0 || length > bytes_.size() - length_bytes)
      damaged("its header claims ", length, " bytes of a file of ", bytes_.size());
    payload_ = bytes_.substr(length_bytes + length);
    const std::string_view header = bytes_.substr(length_bytes, length);
    HeaderNames names;
    nlohmann::json::sax_parse(header, &names);
    if (!names.fault.empty()) damaged(names.fault);
    order_ = std::move(names.order);
    nlohmann::json json = nlohmann::json::parse(header);
    if (!json.is_object()) damaged("its header is no JSON object");
    return json;
  }

  void read_metadata(const nlohmann::json& value, SafetensorsFile& file) {
    if (!value.is_object()) damaged(metadata_key, " is no object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) damaged("metadata ", named(key), " is no string");
      file.metadata[key] = text.get<std::string>();
    }
  }

  Entry entry(const std::string& name, const nlohmann::json& value) const {
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets"))
      damaged("tensor ", named(name), " must have dtype, shape and data_offsets, and nothing else");
    if (!value["dtype"].is_string()) damaged("the type of tensor ", named(name), " is ", shown(value["dtype"]));
    const auto type = value["dtype"].get<std::string>();
    Entry out{name, stored_type(type), {}, 0, 0, type, {}};
    if (!out.type)
      out.unread = text("it is of type ", shown(value["dtype"]), "; F32, BF16, F16, F64 and I32 can be read");
    const std::vector<std::uint64_t> sizes = numbers(name, "shape", value["shape"]);
    const std::vector<std::uint64_t> range = numbers(name, "data_offsets", value["data_offsets"]);
    if (range.size() != 2 || range[0] > range[1] || range[1] > payload_.size())
      damaged("data_offsets of ", named(name), " are ", shown(value["data_offsets"]),
              ", but the file has elements 0 to ", payload_.size());
    out.begin = range[0];
    out.end = range[1];
    if (sizes.size() > std::size_t(Shape::max_rank))
      out.unread = text("it has ", sizes.size(), " axes; at most ", Shape::max_rank, " can be read");
    std::uint64_t needed = bytes_of(type);
    if (needed == 0) return out;
    bool countable = true;
    for (const std::uint64_t size : sizes)
      countable = countable && size < (std::uint64_t(1) << 59) && !__builtin_mul_overflow(needed, size, &needed);
    if (!countable || needed != range[1] - range[0])
      damaged("tensor ", named(name), " of shape ", shown(value["shape"]), " does not fill its ", range[1] - range[0],
              " bytes");
    if (out.unread.empty())
      for (const std::uint64_t size : sizes) out.shape.append(Index(size));
    return out;
  }

  static const StoredType* stored_type(const std::string& name) {
    const auto found = std::ranges::find_if(stored_types, [&](const StoredType& type) { return name == type.name; });
    return found == std::end(stored_types) ? nullptr : found;
  }

  std::vector<std::uint64_t> numbers(const std::string& name, const char* what, const nlohmann::json& value) const {
    std::vector<std::uint64_t> out;
    if (!value.is_array()) damaged(what, " of ", named(name), " is no list");
    for (const nlohmann::json& number : value) {
      if (!number.is_number_unsigned())
        damaged(what, " of ", named(name), " are ", shown(value), ", not all whole numbers from 0 on");
      out.push_back(number.get<std::uint64_t>());
    }
    return out;
  }

  // Sorts the entries by place and refuses gaps and overlaps.
  void verify_ranges() {
    std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::size_t end = 0;
    for (const Entry& e : entries_) {
      if (e.begin != end)
        damaged("tensor ", named(e.name), " begins at ", e.begin, ", but the one before ends at ", end);
      end = e.end;
    }
    if (end != payload_.size()) damaged("its tensors end at ", end, ", its elements at ", payload_.size());
  }

  void verify_checksum(SafetensorsFile& file) const {
    const auto stored = file.metadata.find(checksum_key);
    if (stored == file.metadata.end()) return;
    Checksum sum;
    sum.add(payload_);
    if (stored->second != sum.hex())
      damaged("its elements have checksum ", sum.hex(), ", not ", named(stored->second), " as when it was written");
    file.metadata.erase(stored);
  }

  Tensor tensor(const Entry& e) const {
    Tensor out = Tensor::empty(e.shape, e.type->dtype);
    const char* from = payload_.data() + e.begin;
    void* to = e.type->dtype == DType::f32 ? static_cast<void*>(out.data()) : out.ints();
    if (!e.type->convert && e.end > e.begin) std::memcpy(to, from, e.end - e.begin);
    if (e.type->convert)
      for (Index i = 0; i < out.numel(); ++i) out.data()[i] = e.type->convert(from + std::size_t(i) * e.type->size);
    return out;
  }

  std::string_view bytes_, payload_;
  std::string source_;
  std::vector<std::string> order_;  // the names at the top of the header, as they come
  std::vector<Entry> entries_;
};

// "a, b, c and 12 more"
std::string enumerate(const std::vector<std::string>& items) {
  constexpr std::size_t most = 8;
  std::string out;
  for (std::size_t i = 0; i < std::min(items.size(), most); ++i) out += (i ? ", " : "") + items[i];
  return items.size() > most ? text(out, " and ", items.size() - most, " more") : out;
}

std::string describe(const Shape& shape, DType dtype) { return text(name_of(dtype), " ", shape); }

}  // namespace

SafetensorsFile read_safetensors(std::string_view bytes, const std::string& source, std::vector<UnreadTensor>* unread) {
  return Reader(bytes, source).read(unread);
}

std::vector<Tensor> match_tensors(const std::vector<TensorSpec>& needed, const NamedTensors& stored,
                                  const std::string& source) {
  std::map<std::string, const Tensor*> left;
  for (const NamedTensor& item : stored) left[item.name] = &item.tensor;
  std::vector<std::string> missing, different, extra;
  std::vector<Tensor> found;
  for (const TensorSpec& spec : needed) {
    const auto match = left.find(spec.name);
    if (match == left.end()) {
      missing.push_back(spec.name);
      continue;
    }
    const Tensor& tensor = *match->second;
    if (tensor.shape() != spec.shape || tensor.dtype() != spec.dtype)
      different.push_back(text(spec.name, " (file ", describe(tensor.shape(), tensor.dtype()), ", needed ",
                               describe(spec.shape, spec.dtype), ")"));
    found.push_back(tensor);
    left.erase(match);
  }
  for (const auto& [name, tensor] : left) extra.push_back(text(escaped(name), " ", tensor->shape()));
  if (!missing.empty() || !different.empty() || !extra.empty())
    fail(source, " does not fit this model", missing.empty() ? "" : "; missing in the file: ", enumerate(missing),
         different.empty() ? "" : "; of another shape or type: ", enumerate(different),
         extra.empty() ? "" : "; in the file only: ", enumerate(extra));
  return found;
}

void load_tensors(const NamedTensors& targets, const NamedTensors& stored, const std::string& source) {
  std::vector<TensorSpec> needed;
  for (const NamedTensor& target : targets)
    needed.push_back({target.name, target.tensor.shape(), target.tensor.dtype()});
  const std::vector<Tensor> found = match_tensors(needed, stored, source);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    Tensor target = targets[i].tensor;
    target.copy_from(found[i]);
  }
}

}  // namespace flexformer
