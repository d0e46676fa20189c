// What the race detector (the thread sanitizer, where a build has it) is told about the order of events.
#pragma once
#include "cuda/emulation/fiber.h"

#if EMU_RACES
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}

namespace flexformer::emu {

inline void happens_after(void* event) { __tsan_acquire(event); }
inline void happens_before(void* event) { __tsan_release(event); }
// While one lives, the detector does not see what this fiber does: the scheduler's own allocations and copies. It must
// not outlive a switch, for the fiber might never go on.
struct Unseen {
  Unseen() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unseen() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
};

}  // namespace flexformer::emu
#else
namespace flexformer::emu {

inline void happens_after(void*) {}
inline void happens_before(void*) {}
struct Unseen {
  Unseen() {}  // so that it counts as used
};

}  // namespace flexformer::emu
#endif
