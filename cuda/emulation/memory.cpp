#include "cuda/emulation/memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "cuda/emulation/fence.h"
#include "tensor/error.h"

namespace flexformer::emu {
namespace {

constexpr std::size_t kAlignment = 256;  // as cudaMalloc's
constexpr std::size_t kRoom = std::size_t(4) << 30;

std::size_t extent_of(std::size_t bytes) { return (bytes + kFence + kAlignment - 1) / kAlignment * kAlignment; }

class Memory {
 public:
  Memory() {
    void* p = mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check("emulation", p != MAP_FAILED, "cannot reserve addresses for the device's memory");
    base_ = static_cast<unsigned char*>(p);
    mprotect(base_, kAlignment, PROT_READ | PROT_WRITE);
    fence(base_, kAlignment);
    mprotect(base_, kAlignment, PROT_NONE);
    free_[kAlignment] = kRoom - kAlignment;  // the fence after an allocation is also the one in front of the next
  }

  // Before each use of memory, since test programs install handlers of their own for every test.
  void watch_faults() {
    struct sigaction action = {}, before;
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &before);
    if (!(before.sa_flags & SA_SIGINFO) || before.sa_sigaction != on_fault) other_handler_ = before;
  }

  void* allocate(std::size_t bytes) {
    watch_faults();
    const std::size_t extent = extent_of(bytes);
    if (used_ + extent > capacity_) return nullptr;
    auto hole = free_.begin();
    while (hole != free_.end() && hole->second < extent) ++hole;
    if (hole == free_.end()) return nullptr;
    const auto [start, room] = *hole;
    free_.erase(hole);
    if (room > extent) free_[start + extent] = room - extent;
    reach_ = std::max(reach_, start + extent);
    used_ += extent;
    const DeviceAccess access;
    open(true);  // even if it was before: what can be reached has grown
    unsigned char* p = base_ + start;
    unfence(p, extent);
    poison_unseen(p, bytes);
    fence(p + bytes, extent - bytes);
    live_[start] = bytes;
    return p;
  }

  bool release(void* p) {
    const std::size_t at = std::size_t(static_cast<unsigned char*>(p) - base_);
    const auto found = live_.find(at);
    if (found == live_.end()) return false;
    const std::size_t extent = extent_of(found->second);
    {
      const DeviceAccess access;
      unfence(p, extent);
      fill_unseen(p, extent, kFenceByte);
      fence(p, extent);
    }
    live_.erase(found);
    used_ -= extent;
    auto hole = free_.emplace(at, extent).first;
    if (auto next = std::next(hole); next != free_.end() && at + extent == next->first) {
      hole->second += next->second;
      free_.erase(next);
    }
    if (hole != free_.begin())
      if (auto before = std::prev(hole); before->first + before->second == at) {
        before->second += hole->second;
        free_.erase(hole);
      }
    return true;
  }

  std::string range_error(const void* p, std::size_t bytes) const {
    const auto* at = static_cast<const unsigned char*>(p);
    if (at < base_ || at >= base_ + kRoom) return text(p, " is no device memory");
    auto next = live_.upper_bound(std::size_t(at - base_));
    if (next == live_.begin()) return text(p, " lies in no live allocation");
    const auto [start, size] = *--next;
    const std::size_t offset = std::size_t(at - base_) - start;
    if (offset > size) return text(p, " lies in no live allocation");
    if (offset + bytes > size)
      return text("bytes ", offset, " to ", offset + bytes, " of an allocation of ", size, " bytes");
    return "";
  }

  std::string argument_error(std::uint64_t word, bool host) const {
    const auto base = reinterpret_cast<std::uint64_t>(base_);
    if (word >= base && word < base + kRoom) return range_error(reinterpret_cast<const void*>(word), 0);
    if (!host || word >> 44 == 0 || word >> 47) return "";  // programs and their memory lie higher, sizes lower
    const std::uint64_t page = word / 4096 * 4096;
    unsigned char resident;
    if (mincore(reinterpret_cast<void*>(page), 1, &resident) != 0 && errno == ENOMEM) return "";
    return text(reinterpret_cast<const void*>(word), " is memory of the host");
  }

  std::string fence_error() {
    if (EMU_ASAN) return "";
    const DeviceAccess access;
    for (const auto& [start, bytes] : live_) {
      const unsigned char* p = base_ + start;
      if (!fence_is_whole(p + bytes, extent_of(bytes) - bytes)) return text("wrote past ", describe(start, bytes));
      if (!fence_is_whole(p - kFence, kFence)) return text("wrote in front of ", describe(start, bytes));
    }
    return "";
  }

  void open(bool on) {
    if (reach_) mprotect(base_, (reach_ + 4095) / 4096 * 4096, on ? PROT_READ | PROT_WRITE : PROT_NONE);
  }

  int accesses = 0;
  std::size_t capacity_ = kRoom, used_ = 0;

 private:
  static std::string describe(std::size_t start, std::size_t bytes) {
    return text("an allocation of ", bytes, " bytes (at offset ", start, ")");
  }
  static void on_fault(int signal, siginfo_t* info, void*);

  unsigned char* base_;
  struct sigaction other_handler_ = {};
  std::size_t reach_ = 0;                    // the end of the highest allocation there has been
  std::map<std::size_t, std::size_t> free_;  // start -> bytes
  std::map<std::size_t, std::size_t> live_;
};

Memory& memory() {
  static Memory* all = new Memory;
  return *all;
}

// Names what was touched and ends the program, as a device would end the context.
void Memory::on_fault(int signal, siginfo_t* info, void*) {
  const Memory& m = memory();
  const auto* at = static_cast<const unsigned char*>(info->si_addr);
  if (at >= m.base_ && at < m.base_ + kRoom) {
    const std::string where = m.range_error(at, 0);
    const std::string said =
        text("emulation: ",
             m.accesses ? "a kernel touches device memory that is not allocated"
                        : "the host touches device memory; copy the tensor with to(Device::cpu) first",
             where.empty() ? "" : ": ", where, "\n");
    if (write(STDERR_FILENO, said.data(), said.size()) < 0) _exit(1);
    _exit(1);
  }
  sigaction(signal, &m.other_handler_, nullptr);  // who then sees the same fault again
}

}  // namespace

void* allocate(std::size_t bytes) { return memory().allocate(bytes); }
bool release(void* p) { return memory().release(p); }
std::string range_error(const void* p, std::size_t bytes) { return memory().range_error(p, bytes); }
std::string argument_error(std::uint64_t word, bool host) { return memory().argument_error(word, host); }
std::string fence_error() { return memory().fence_error(); }

DeviceAccess::DeviceAccess() {
  if (memory().accesses++ == 0) memory().open(true);
}
DeviceAccess::~DeviceAccess() {
  if (--memory().accesses == 0) memory().open(false);
}

void set_capacity(std::size_t bytes) { memory().capacity_ = bytes < kRoom ? bytes : kRoom; }
std::size_t free_bytes() { return memory().capacity_ - memory().used_; }
std::size_t capacity() { return memory().capacity_; }

}  // namespace flexformer::emu
