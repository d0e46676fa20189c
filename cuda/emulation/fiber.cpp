#include "cuda/emulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#if EMU_ASAN
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if EMU_RACES
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}
#endif

namespace flexformer::emu {
namespace {

constexpr std::size_t guard = 4096;  // below the stack: an overflow faults
#if EMU_ASAN
constexpr std::size_t stack_bytes = 256 << 10;
#else
constexpr std::size_t stack_bytes = 64 << 10;
#endif

}  // namespace

#if defined(__x86_64__)
// switch_stacks(save, load): pushes what a callee must preserve, changes stacks and pops the same from the other one.
extern "C" void flexformer_switch_stacks(void** save, void* load);
asm(R"(
  .text
  .globl flexformer_switch_stacks
  .type flexformer_switch_stacks, @function
flexformer_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size flexformer_switch_stacks, .-flexformer_switch_stacks

  .globl flexformer_fiber_start
flexformer_fiber_start:
  movq %r12, %rdi
  call *%r13
  ud2
)");
extern "C" void flexformer_fiber_start();
#endif

Fiber::Fiber() {
#if EMU_RACES
  race_detector_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(void (*entry)(Fiber*)) {
  stack_ =
      mmap(nullptr, guard + stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack_ == MAP_FAILED) throw std::bad_alloc();
  mprotect(stack_, guard, PROT_NONE);
  char* top = static_cast<char*>(stack_) + guard + stack_bytes;
#if defined(__x86_64__)
  void** sp = reinterpret_cast<void**>(top) - 7;  // r15 r14 r13 r12 rbx rbp, return address
  sp[2] = reinterpret_cast<void*>(entry);
  sp[3] = this;
  sp[6] = reinterpret_cast<void*>(flexformer_fiber_start);
  stack_pointer_ = sp;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = static_cast<char*>(stack_) + guard;
  context_.uc_stack.ss_size = stack_bytes;
  const auto self = reinterpret_cast<std::uintptr_t>(this), start = reinterpret_cast<std::uintptr_t>(entry);
  makecontext(&context_, reinterpret_cast<void (*)()>(+[](unsigned f1, unsigned f0, unsigned e1, unsigned e0) {
    const auto join = [](unsigned high, unsigned low) { return std::uintptr_t(high) << 32 | low; };
    reinterpret_cast<void (*)(Fiber*)>(join(e1, e0))(reinterpret_cast<Fiber*>(join(f1, f0)));
  }),
              4, unsigned(self >> 32), unsigned(self), unsigned(start >> 32), unsigned(start));
#endif
#if EMU_RACES
  race_detector_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (!stack_) return;
#if EMU_RACES
  __tsan_destroy_fiber(race_detector_);
#endif
#if EMU_ASAN
  __asan_unpoison_memory_region(static_cast<char*>(stack_) + guard, stack_bytes);
#endif
  munmap(stack_, guard + stack_bytes);
}

#if EMU_ASAN
namespace {

struct Stack {
  void* bottom;
  std::size_t bytes;
};
Stack host_stack() {
  static const Stack stack = [] {
    Stack found{};
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &found.bottom, &found.bytes);
    pthread_attr_destroy(&attributes);
    return found;
  }();
  return stack;
}

}  // namespace

void Fiber::entered() { __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr); }
#else
void Fiber::entered() {}
#endif

void Fiber::switch_to(Fiber& from, Fiber& to) {
#if EMU_RACES
  __tsan_switch_to_fiber(to.race_detector_, 1);  // 1: without synchronisation
#endif
#if EMU_ASAN
  const Stack stack = to.stack_ ? Stack{static_cast<char*>(to.stack_) + guard, stack_bytes} : host_stack();
  __sanitizer_start_switch_fiber(&from.address_checker_, stack.bottom, stack.bytes);
#endif
#if defined(__x86_64__)
  flexformer_switch_stacks(&from.stack_pointer_, to.stack_pointer_);
#else
  swapcontext(&from.context_, &to.context_);
#endif
#if EMU_ASAN
  __sanitizer_finish_switch_fiber(from.address_checker_, nullptr, nullptr);
#endif
}

Fiber& Fiber::host() {
  static Fiber fiber;
  return fiber;
}

}  // namespace flexformer::emu
