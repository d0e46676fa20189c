// The emulated device's memory: one range of addresses that only kernels and copies can reach. Allocations are exactly
// as large as asked for, full of poison at first and fenced on both sides.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace flexformer::emu {

// Null when the device is full.
void* allocate(std::size_t bytes);
// False if p is not the start of a live allocation.
bool release(void* p);

// "" if [p, p + bytes) lies in one live allocation, else what is wrong.
std::string range_error(const void* p, std::size_t bytes);
// "" if the word can be a kernel's argument: a pointer into, or just past, a live allocation, or no address at all
// (`host` says whether addresses of the host are looked for too).
std::string argument_error(std::uint64_t word, bool host);
// "" or which allocation was written outside its bounds.
std::string fence_error();

// While one of these lives, device memory can be touched; otherwise the host faults on it, with a message.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

// The device's size; at most (and at first) 4 GB.
void set_capacity(std::size_t bytes);
std::size_t free_bytes();
std::size_t capacity();

}  // namespace flexformer::emu
