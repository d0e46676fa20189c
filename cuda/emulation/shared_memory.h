// The shared memory of a block: full of poison when the block starts, every array fenced, all bytes counted.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace flexformer::emu {

constexpr std::size_t kSharedLimit = 48 << 10;        // per block without asking
constexpr std::size_t kSharedOptInLimit = 227 << 10;  // with cudaFuncSetAttribute, on sm_90

class SharedMemory {
 public:
  void begin_block(int set, std::size_t dynamic_bytes);
  // Throws Error when static arrays pass kSharedLimit.
  void* array(const void* key, std::size_t bytes, std::size_t alignment, const char* name);
  void* dynamic();
  // "" or which array was written past its end.
  std::string overrun() const;

 private:
  struct Array {
    const void* key;
    const char* name;
    unsigned char* p;
    std::size_t bytes;
  };
  Array& add(const void* key, std::size_t bytes, std::size_t alignment, const char* name);

  static constexpr std::size_t room_ = 320 << 10;
  alignas(1024) unsigned char memory_[2][room_];
  int set_ = 0;
  std::size_t used_ = 0, static_bytes_ = 0, dynamic_bytes_ = 0;
  std::vector<Array> arrays_;
};

SharedMemory& shared_memory();

}  // namespace flexformer::emu
