#include "cuda/emulation/shared_memory.h"

#include <algorithm>
#include <cstdint>

#include "cuda/emulation/fence.h"
#include "cuda/emulation/threads.h"
#include "tensor/error.h"

namespace flexformer::emu {

void SharedMemory::begin_block(int set, std::size_t dynamic_bytes) {
  set_ = set;
  if (EMU_ASAN) unfence(memory_[set], room_);
  arrays_.clear();
  used_ = static_bytes_ = 0;
  dynamic_bytes_ = dynamic_bytes;
}

SharedMemory::Array& SharedMemory::add(const void* key, std::size_t bytes, std::size_t alignment, const char* name) {
  unsigned char* start = memory_[set_] + used_;
  unsigned char* p = start + kFence;
  p += (alignment - reinterpret_cast<std::uintptr_t>(p) % alignment) % alignment;
  used_ = std::size_t(p - memory_[set_]) + bytes;
  used_ += 8 - used_ % 8;
  poison_unseen(p, bytes);
  fence(start, std::size_t(p - start));
  fence(p + bytes, kFence);
  arrays_.push_back({key, name, p, bytes});
  return arrays_.back();
}

void* SharedMemory::array(const void* key, std::size_t bytes, std::size_t alignment, const char* name) {
  const auto found = std::find_if(arrays_.begin(), arrays_.end(), [&](const Array& a) { return a.key == key; });
  if (found != arrays_.end()) return found->p;
  static_bytes_ += bytes;
  check("shared memory", static_bytes_ <= kSharedLimit, static_bytes_, " bytes of static arrays, at most ",
        kSharedLimit, " fit; use DYN_SHARED");
  check("shared memory", static_bytes_ + dynamic_bytes_ <= kSharedOptInLimit, static_bytes_ + dynamic_bytes_,
        " bytes in one block, at most ", kSharedOptInLimit, " fit");
  return add(key, bytes, std::max<std::size_t>(alignment, 16), name).p;
}

void* SharedMemory::dynamic() {
  const auto found = std::find_if(arrays_.begin(), arrays_.end(), [&](const Array& a) { return a.key == this; });
  if (found != arrays_.end()) return found->p;
  check("shared memory", dynamic_bytes_ > 0,
        "a kernel uses DYN_SHARED, but its launch asks for no dynamic shared memory");
  return add(this, dynamic_bytes_, 1024, "DYN_SHARED").p;
}

std::string SharedMemory::overrun() const {
  if (EMU_ASAN) return "";
  for (const Array& a : arrays_)
    if (!fence_is_whole(a.p + a.bytes, kFence) || !fence_is_whole(a.p - kFence, kFence))
      return text("a thread wrote outside the shared array ", a.name, " of ", a.bytes, " bytes");
  return "";
}

SharedMemory& shared_memory() {
  static SharedMemory* memory = new SharedMemory;
  return *memory;
}

void* shared_array(const void* key, std::size_t bytes, std::size_t alignment, const char* name) {
  return shared_memory().array(key, bytes, alignment, name);
}
void* dynamic_shared() { return shared_memory().dynamic(); }

}  // namespace flexformer::emu
