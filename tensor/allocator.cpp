// One free list per size class. Classes are 1/8 of a power of two apart, so at most an eighth of a block is wasted and
// a size that comes again finds the block it left. The pool is never destroyed: tensors with static lifetime may
// outlive it.
#include "tensor/allocator.h"

#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tensor/device_memory.h"

namespace flexformer::memory {
namespace {

std::size_t size_class(std::size_t bytes) {
  if (bytes <= 512) return std::max<std::size_t>(64, (bytes + 63) / 64 * 64);
  const std::size_t step = std::bit_floor(bytes - 1) / 8;
  return (bytes + step - 1) / step * step;
}

class Pool {
 public:
  explicit Pool(Device device) : device_(device) {}

  void* allocate(std::size_t bytes) {
    std::lock_guard lock(mutex_);
    const std::size_t size = size_of(bytes);
    void* block = reuse(open_, size);
    if (!block) block = reuse(kEveryone, size);
    if (!block) block = from_system(size);
    if (!block) {
      trim_locked();
      block = from_system(size);
    }
    if (!block)
      fail(device_ == Device::cpu ? "out of memory: " : "out of memory on the GPU: ", megabytes(size), " more needed, ",
           megabytes(std::size_t(stats_.live_bytes)),
           " in use; lower train.batch, train.block (or data.max_length), model.dim or model.layers");
    stats_.live_bytes += Index(size);
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
    if (open_ != kEveryone) owners_[block] = open_;
    if (poison_) poison(block, size);
    return block;
  }

  void release(void* block, std::size_t bytes) {
    std::lock_guard lock(mutex_);
    const std::size_t size = size_of(bytes);
    const auto owner = owners_.find(block);
    free_[owner == owners_.end() ? kEveryone : owner->second][size].push_back(block);
    stats_.live_bytes -= Index(size);
    if (!caching_) trim_locked();
  }

  void trim() {
    std::lock_guard lock(mutex_);
    trim_locked();
  }

  Stats stats() {
    std::lock_guard lock(mutex_);
    return stats_;
  }

  void reset_peak() {
    std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.live_bytes;
  }

  void set_poison(bool on) {
    std::lock_guard lock(mutex_);
    poison_ = on;
  }

  int reserve() {
    std::lock_guard lock(mutex_);
    return ++reservations_;
  }

  void open(int reservation) {
    std::lock_guard lock(mutex_);
    check("memory", open_ == kEveryone, "two reservations cannot be open at a time");
    open_ = reservation;
  }
  void close() {
    std::lock_guard lock(mutex_);
    open_ = kEveryone;
  }

  void end(int reservation) {
    std::lock_guard lock(mutex_);
    std::erase_if(owners_, [&](const auto& block_and_owner) { return block_and_owner.second == reservation; });
    for (auto& [size, blocks] : free_[reservation])
      free_[kEveryone][size].insert(free_[kEveryone][size].end(), blocks.begin(), blocks.end());
    free_.erase(reservation);
    if (!caching_) trim_locked();
  }

  void set_caching(bool on) {
    std::lock_guard lock(mutex_);
    check("memory", stats_.live_bytes == 0, stats_.live_bytes, " bytes are in use");
    trim_locked();
    caching_ = on;
  }

 private:
  std::size_t size_of(std::size_t bytes) const {
    return caching_ ? size_class(bytes) : std::max<std::size_t>(1, bytes);
  }

  static std::string megabytes(std::size_t bytes) { return text((bytes + 999999) / 1000000, " MB"); }

  void* reuse(int owner, std::size_t size) {
    FreeBlocks& free = free_[owner];
    auto found = free.find(size);
    if (found == free.end() || found->second.empty()) return nullptr;
    void* block = found->second.back();
    found->second.pop_back();
    return block;
  }

  void* from_system(std::size_t size) {
    void* block = device_ == Device::cpu ? from_host(size) : device::allocate(size);
    if (!block) return nullptr;
    stats_.reserved_bytes += Index(size);
    ++stats_.system_calls;
    return block;
  }

  // Large blocks ask for huge pages: a system that has them then hands memory out 512 small pages at a time, which is
  // several times faster, and addresses are translated with fewer misses. The part behind the last whole one is small.
  static void* from_host(std::size_t size) {
    constexpr std::size_t huge_page = std::size_t(2) << 20;
    void* block = nullptr;
    if (posix_memalign(&block, size >= huge_page ? huge_page : 64, size) != 0) return nullptr;
#if defined(MADV_HUGEPAGE)
    if (size >= huge_page) madvise(block, size / huge_page * huge_page, MADV_HUGEPAGE);
#endif
    return block;
  }

  // 0xFFFFFFFF is a NaN as a float and -1 as an int.
  void poison(void* block, std::size_t size) const {
    if (device_ == Device::cpu)
      std::memset(block, 0xFF, size);
    else
      device::fill(block, 0xFF, size);
  }

  void trim_locked() {
    for (auto& [size, blocks] : free_[kEveryone]) {
      stats_.reserved_bytes -= Index(size * blocks.size());
      for (void* block : blocks) device_ == Device::cpu ? std::free(block) : device::release(block);
      blocks.clear();
    }
  }

  static constexpr int kEveryone = 0;  // reservations are numbered from 1
  using FreeBlocks = std::map<std::size_t, std::vector<void*>>;

  std::mutex mutex_;
  std::map<int, FreeBlocks> free_;  // of each reservation
  std::map<void*, int> owners_;     // of blocks that belong to a reservation
  int reservations_ = 0, open_ = kEveryone;
  Stats stats_;
  Device device_;
  bool poison_ = false, caching_ = true;
};

Pool& pool(Device device) {
  static Pool *cpu = new Pool(Device::cpu), *cuda = new Pool(Device::cuda);
  return device == Device::cpu ? *cpu : *cuda;
}

}  // namespace

void* allocate(Device device, std::size_t bytes) {
  check("memory", device == Device::cpu || device::trouble().empty(), device::trouble());
  return pool(device).allocate(bytes);
}
void release(Device device, void* block, std::size_t bytes) noexcept { pool(device).release(block, bytes); }
Stats stats(Device device) { return pool(device).stats(); }
void reset_peak(Device device) { pool(device).reset_peak(); }
void trim(Device device) { pool(device).trim(); }
void set_poison(bool on) {
  for (Device device : {Device::cpu, Device::cuda}) pool(device).set_poison(on);
}
void set_caching(Device device, bool on) { pool(device).set_caching(on); }

Reservation::Reservation(Device device) : device_(device), number_(pool(device).reserve()) {}
Reservation::~Reservation() { pool(device_).end(number_); }
void Reservation::during(const std::function<void()>& work) const {
  struct Closing {
    Pool& memory;
    ~Closing() { memory.close(); }
  };
  pool(device_).open(number_);
  const Closing closing{pool(device_)};
  work();
}

}  // namespace flexformer::memory
