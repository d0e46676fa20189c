// One fiber per thread of a block. A thread runs until it returns or has to wait; then the next ready one goes on, in
// the order that the test has set. A thread that begins takes the stack of one that has returned, so that kernels
// without barriers hardly switch at all. When nobody is ready though some threads are left, they wait in vain: for
// others that wait elsewhere or have returned. That is an error, told with who waits where.
//
// For the race detector each thread is a thread of its own (on a stack of its own), ordered with others only by the
// launch, __syncthreads and __syncwarp. Neighbouring blocks take turns between two sets of threads and of shared
// memory, so that they stay unordered. This file is compiled without the detector: it must not see the scheduler.
#include "cuda/emulation/scheduler.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "cuda/emulation/fiber.h"
#include "cuda/emulation/mma.h"
#include "cuda/emulation/race_detector.h"
#include "cuda/emulation/shared_memory.h"
#include "tensor/error.h"

namespace flexformer::emu {
namespace {

constexpr unsigned kWarp = 32;

struct Events {
  long launch;
  // In turns: a thread that goes on from one barrier must not come after who is at the next one already.
  long barrier[2], warp[kWarp][4];
  long block_end[4];  // of the last four blocks, in turns
  long stop;          // of a thread that waits when a kernel is given up; only the host comes after it
} events;

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  int group;
};

struct Thread {
  uint3 index{};
  unsigned number = 0;  // in the block
  bool returned = false;
  Fiber* fiber = nullptr;       // null: has not begun, or has returned
  const char* waits = nullptr;  // for what, and where
  Place place{};
  std::uint64_t received = 0;
  std::vector<Copy> copies;
  int groups = 0;
};

// Lanes that wait for each other.
struct Meeting {
  Collective what;
  unsigned mask, arrived, number;
  Place place;
  std::uint64_t value[kWarp];
  int source[kWarp];
};

bool same(Place a, Place b) { return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0); }
std::string describe(Place place) { return text(place.file, ":", place.line); }
std::string describe(uint3 i) { return text("(", i.x, ",", i.y, ",", i.z, ")"); }
const char* describe(Collective what) {
  static constexpr const char* names[] = {"__syncwarp", "a shuffle", "a ballot", "a product", "ldmatrix"};
  return names[int(what)];
}

uint3 unravel(std::uint64_t i, dim3 size) {
  return {unsigned(i % size.x), unsigned(i / size.x % size.y), unsigned(i / size.x / size.y)};
}

class Scheduler {
 public:
  void set_order(Order order, std::uint64_t seed) {
    order_ = order;
    random_ = seed * 2 + 1;
  }

  void run(const Grid& grid, Body body) {
    grid_ = grid;
    body_ = body;
    blockDim = grid.threads;
    gridDim = grid.blocks;
    const std::uint64_t blocks = std::uint64_t(grid.blocks.x) * grid.blocks.y * grid.blocks.z;
    happens_before(&events.launch);
    std::vector<std::uint64_t> random_order(order_ == Order::random ? blocks : 0);
    std::iota(random_order.begin(), random_order.end(), 0);
    shuffle(random_order);
    for (std::uint64_t i = 0; i < blocks; ++i) {
      blockIdx = unravel(order_ == Order::forward   ? i
                         : order_ == Order::reverse ? blocks - 1 - i
                                                    : random_order[i],
                         grid.blocks);
      turn_ = (turn_ + 1) % 4;
      run_block();
    }
    end();
  }

  Thread& current() { return *current_; }
  const char* kernel_place() { return grid_.place.file; }

  void wait_for_block(Place place) {
    Thread& t = *current_;
    if (arrived_++ == 0)
      barrier_ = place;
    else
      one_barrier_ = one_barrier_ && same(place, barrier_);
    long* const event = &events.barrier[barriers_ % 2];
    happens_before(event);
    if (arrived_ == threads_.size() && one_barrier_) {
      const Unseen unseen;
      arrived_ = 0;
      ++barriers_;
      for (unsigned number : thread_order_) ready_.push_back(&threads_[number]);
    }
    wait(t, "__syncthreads", place);
    happens_after(event);
  }

  std::uint64_t meet(Collective what, unsigned mask, std::uint64_t value, int source, Place place) {
    Thread& t = *current_;
    const unsigned warp = t.number / kWarp;
    check_mask(what, mask, warp, t.number % kWarp, place);
    long* const event = &events.warp[warp][arrive(what, mask, value, source, place) % 4];
    if (what == Collective::sync) happens_before(event);
    wait(t, describe(what), place);
    if (what == Collective::sync) happens_after(event);
    return t.received;
  }

 private:
  // Puts the lane down for its meeting, and holds that when it is the last to come. Returns the meeting's number.
  unsigned arrive(Collective what, unsigned mask, std::uint64_t value, int source, Place place) {
    const Unseen unseen;
    const unsigned warp = current_->number / kWarp, lane = current_->number % kWarp;
    auto& meetings = meetings_[warp];
    auto found = std::find_if(meetings.begin(), meetings.end(), [&](const Meeting& m) {
      return m.what == what && m.mask == mask && same(m.place, place) && !(m.arrived >> lane & 1);
    });
    if (found == meetings.end()) found = meetings.insert(found, {what, mask, 0, meetings_held_[warp]++, place, {}, {}});
    found->arrived |= 1u << lane;
    found->value[lane] = value;
    found->source[lane] = source;
    const unsigned number = found->number;
    if (found->arrived == mask) {
      exchange(*found, warp);
      meetings.erase(found);
    }
    return number;
  }

  // From here on the host may touch what the threads have touched.
  static void end() {
    for (long& event : events.block_end) happens_after(&event);
    happens_after(&events.stop);
  }

  void run_block() {
    const std::size_t n = std::size_t(grid_.threads.x) * grid_.threads.y * grid_.threads.z;
    threads_.resize(n);
    meetings_.assign((n + kWarp - 1) / kWarp, {});
    thread_order_.resize(n);
    std::iota(thread_order_.begin(), thread_order_.end(), 0u);
    if (order_ == Order::reverse) std::reverse(thread_order_.begin(), thread_order_.end());
    if (order_ == Order::random) shuffle(thread_order_);
    ready_.clear();
    next_ready_ = 0;
    for (unsigned number : thread_order_) {
      Thread& t = threads_[number];
      t.index = unravel(number, grid_.threads);
      t.number = number;
      t.returned = false;
      t.copies.clear();
      ready_.push_back(&t);
    }
    left_ = n;
    arrived_ = 0;
    one_barrier_ = true;
    error_ = nullptr;
    // Made here, since for the race detector a fiber comes after the one that made it.
    while (EMU_RACES && fibers_[set()].size() < n) fibers_[set()].push_back(std::make_unique<Fiber>(run_threads));
    shared_memory().begin_block(set(), grid_.dynamic_shared);
    leave(Fiber::host());
    const std::string overrun = shared_memory().overrun();
    // Threads that still wait tell the race detector that the host comes after them: doing so at every wait, in case it
    // is in vain, would take the detector most of its time.
    if (error_ && EMU_RACES)
      for (Thread& t : threads_)
        if (t.fiber) Fiber::switch_to(Fiber::host(), *t.fiber);
    if (error_ || !overrun.empty()) end();
    if (error_) {  // what the other threads had on their stacks is given up
      for (auto* fibers : {&fibers_[0], &fibers_[1]}) fibers->clear();
      free_.clear();
      for (Thread& t : threads_) t.fiber = nullptr;
      try {
        std::rethrow_exception(error_);
      } catch (const Error& error) {
        fail("emulation: ", error.what(), ", in block ", describe(blockIdx), " of the kernel launched at ",
             describe(grid_.place));
      }
    }
    if (!overrun.empty())
      fail("emulation: ", overrun, ", in block ", describe(blockIdx), " of the kernel launched at ",
           describe(grid_.place));
  }

  // What a fiber does: one thread after another.
  static void run_threads(Fiber* self);

  // Goes on with the next ready thread, or where there is none with the host. Returns when `from` is to run again.
  void leave(Fiber& from) {
    Fiber& to = next_fiber();
    if (&to != &from) Fiber::switch_to(from, to);
  }

  Fiber& next_fiber() {
    const Unseen unseen;
    if (next_ready_ == ready_.size() || error_) {
      if (left_ > 0 && !error_) error_ = std::make_exception_ptr(Error(stuck()));
      return Fiber::host();
    }
    current_ = ready_[next_ready_++];
    if (next_ready_ == ready_.size()) ready_.clear(), next_ready_ = 0;
    threadIdx = current_->index;
    if (!current_->fiber) current_->fiber = &fresh_fiber(current_->number);
    return *current_->fiber;
  }

  void wait(Thread& t, const char* what, Place place) {
    t.waits = what;
    t.place = place;
    leave(*t.fiber);
    if (error_) {  // run_block() goes on with it for this alone
      happens_before(&events.stop);
      Fiber::switch_to(*t.fiber, Fiber::host());
    }
    t.waits = nullptr;
  }

  // Of fibers and of shared memory.
  int set() const { return int(turn_ % 2); }

  Fiber& fresh_fiber(unsigned number) {
    auto& fibers = fibers_[EMU_RACES ? set() : 0];
    if (EMU_RACES) return *fibers[number];
    if (free_.empty()) {
      fibers.push_back(std::make_unique<Fiber>(run_threads));
      free_.push_back(fibers.back().get());
    }
    Fiber* fiber = free_.back();
    free_.pop_back();
    return *fiber;
  }

  void check_mask(Collective what, unsigned mask, unsigned warp, unsigned lane, Place place) {
    if (!(mask >> lane & 1))
      fail("lane ", lane, " calls ", describe(what), " at ", describe(place), " with a mask that leaves it out");
    for (unsigned other = 0; other < kWarp; ++other) {
      const unsigned number = warp * kWarp + other;
      if (!(mask >> other & 1) || (number < threads_.size() && !threads_[number].returned)) continue;
      fail(describe(what), " at ", describe(place), " waits for lane ", other, " of warp ", warp, ", which ",
           number < threads_.size() ? "has returned" : "does not exist");
    }
  }

  // Gives every lane what it asked for and lets all of them go on.
  void exchange(const Meeting& m, unsigned warp) {
    unsigned ballot = 0;
    for (unsigned i = 0; i < kWarp; ++i)
      if (m.mask >> i & 1 && m.value[i]) ballot |= 1u << i;
    if (m.what == Collective::product) multiply_fragments(m.value);
    if (m.what == Collective::rows) share_rows(m.value);
    const unsigned turn = order_ == Order::random ? unsigned(draw()) : order_ == Order::reverse ? kWarp - 1 : 0;
    for (unsigned i = 0; i < kWarp; ++i) {
      const unsigned lane = i ^ (turn % kWarp);
      if (!(m.mask >> lane & 1)) continue;
      Thread& t = threads_[warp * kWarp + lane];
      t.received = ballot;
      if (m.what == Collective::shuffle) {
        if (!(m.mask >> m.source[lane] & 1))
          fail("lane ", lane, " reads lane ", m.source[lane], " in a shuffle at ", describe(m.place),
               " whose mask leaves that out");
        t.received = m.value[m.source[lane]];
      }
      ready_.push_back(&t);
    }
  }

  // Who waits where, in words: a line for each place.
  std::string stuck() const {
    std::string out = "threads wait for each other in vain";
    std::vector<const Thread*> told;
    std::size_t returned = 0;
    for (const Thread& t : threads_) {
      returned += t.returned;
      const auto alike = [&](const Thread* other) { return same(other->place, t.place) && other->waits == t.waits; };
      if (!t.waits || std::any_of(told.begin(), told.end(), alike)) continue;
      told.push_back(&t);
      const auto count = std::count_if(threads_.begin(), threads_.end(),
                                       [&](const Thread& o) { return o.waits == t.waits && same(o.place, t.place); });
      out += text("; ", count, " at ", t.waits, " (", describe(t.place), "), the first is thread ", describe(t.index));
    }
    if (returned) out += text("; ", returned, " have returned");
    return out;
  }

  std::uint64_t draw() {  // xorshift
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return random_;
  }
  template <class T> void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[draw() % i]);
  }

  Order order_ = Order::forward;
  std::uint64_t random_ = 1;
  Grid grid_;
  Body body_{};
  unsigned turn_ = 0;  // counts blocks
  std::vector<Thread> threads_;
  std::vector<unsigned> thread_order_;
  std::vector<Thread*> ready_;
  std::size_t next_ready_ = 0, left_ = 0, arrived_ = 0;
  bool one_barrier_ = true;
  unsigned barriers_ = 0, meetings_held_[kWarp] = {};  // counts, of each warp
  Place barrier_{};
  std::vector<std::vector<Meeting>> meetings_;  // per warp
  std::vector<std::unique_ptr<Fiber>> fibers_[2];
  std::vector<Fiber*> free_;
  Thread* current_ = nullptr;
  std::exception_ptr error_;
};

Scheduler& scheduler() {
  static Scheduler* all = new Scheduler;
  return *all;
}

void Scheduler::run_threads(Fiber* self) {
  Fiber::entered();
  for (Scheduler& s = scheduler();;) {
    Thread& t = *s.current_;
    happens_after(&events.launch);
    happens_after(&events.block_end[(s.turn_ + 2) % 4]);  // the block before that had the same set
    try {
      s.body_.call(s.body_.self);
      wait_for_copies(0);
    } catch (...) {
      s.error_ = std::current_exception();
    }
    happens_before(&events.block_end[s.turn_]);
    t.returned = true;
    t.fiber = nullptr;
    --s.left_;
    if (!EMU_RACES) s.free_.push_back(self);
    s.leave(*self);
  }
}

}  // namespace

void set_order(Order order, std::uint64_t seed) { scheduler().set_order(order, seed); }
void run_grid(const Grid& grid, Body body) { scheduler().run(grid, body); }

void wait_for_block(Place place) { scheduler().wait_for_block(place); }
std::uint64_t meet(Collective what, unsigned mask, std::uint64_t value, int source, Place place) {
  return scheduler().meet(what, mask, value, source, place);
}
int lane() { return int(scheduler().current().number % kWarp); }

void copy_later(void* to, const void* from, std::size_t bytes) {
  check("copy", bytes == 4 || bytes == 8 || bytes == 16, bytes, " bytes; an asynchronous copy takes 4, 8 or 16");
  const auto misplaced = (reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % bytes;
  check("copy", misplaced == 0, "an asynchronous copy of ", bytes, " bytes must be aligned to as many");
  const Unseen unseen;
  Thread& t = scheduler().current();
  t.copies.push_back({to, from, bytes, t.groups});
}
void commit_copies() { ++scheduler().current().groups; }
void wait_for_copies(int groups_left) {
  Thread& t = scheduler().current();
  std::erase_if(t.copies, [&](const Copy& copy) {
    if (copy.group >= t.groups - groups_left && groups_left > 0) return false;
    std::memcpy(copy.to, copy.from, copy.bytes);
    return true;
  });
}

}  // namespace flexformer::emu
