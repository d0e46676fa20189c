// The pool behind parallel_for. One thread, the caller, offers a job; it and the helpers (threads of the pool) claim
// its pieces one by one. All that a claim changes is in one word, the ticket, so that a helper which comes late, or is
// put aside by the system before it has claimed, holds nobody up. Pieces that are claimed must be waited for.
//
// Waiting: helpers look for the next job for 50 us, mostly longer than a model's code between two jobs takes, and then
// sleep: waking one costs the caller 4 to 9 us. A caller that waits for the last pieces sleeps after a while as well.
//
// Beside busy processes a helper may be put aside in the middle of a piece, for milliseconds. `Patience` counts the
// time that is lost like this. When it is more than now and then, jobs have fewer helpers for some time.
#include "tensor/parallel.h"

#include "tensor/processors.h"

#ifndef FLEXFORMER_THREADS
#define FLEXFORMER_THREADS 1
#endif

#if FLEXFORMER_THREADS
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>

namespace flexformer {
namespace {

using Call = void (*)(const void* body, Index piece);
using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using Seconds = std::chrono::duration<double>;

constexpr int kMostThreads = 1024;
constexpr Seconds kSpin{50e-6};     // how long to look for work, or for the end of it, before sleeping
constexpr Seconds kSpinLong{1e-3};  // the most, where one's own pieces took long

thread_local constinit int own_index = 0;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Whether condition() came true within the time.
template <class Condition> bool spin_until(const Condition& condition, Seconds most) {
  for (const Time begin = Clock::now();;) {
    for (int i = 0; i < 32; ++i, relax())
      if (condition()) return true;
    if (Clock::now() - begin > most) return condition();
  }
}

// How many helpers to ask. Time lost by waiting for helpers that were put aside is a debt, of which a twentieth of the
// time that passes is forgiven. A debt above 10 ms is paid back with fewer helpers: so waiting costs 5 % in the long
// run. Single interruptions, which a quiet machine has too, change nothing.
class Patience {
 public:
  int helpers(int wanted) {
    if (wanted <= limit_) return wanted;
    if (Clock::now() < until_) return limit_;
    limit_ = kMostThreads;
    return wanted;
  }
  // `late` of `helpers` helpers let the caller wait for `waited`, where `usual` could be expected.
  void add(Time now, Seconds waited, Seconds usual, int helpers, int late) {
    if (waited < 2 * usual + kLate) return;
    debt_ = std::max(Seconds(0), Seconds(debt_ - kForgiven * (now - since_))) + waited - usual;
    since_ = now;
    if (debt_ < kMostDebt) return;
    limit_ = std::max(0, helpers - std::max(1, late));
    until_ = now + std::chrono::duration_cast<Clock::duration>(debt_ / kForgiven);
  }

 private:
  static constexpr Seconds kLate{200e-6}, kMostDebt{10e-3};
  static constexpr double kForgiven = 0.05;
  Seconds debt_{0};
  Time since_{}, until_{};
  int limit_ = kMostThreads;
};

// The ticket: the job's number, how many helpers have joined it, and how many pieces nobody has claimed.
constexpr int kLeftBits = 22, kJoinedBits = 10;
constexpr std::uint64_t kJoin = std::uint64_t(1) << kLeftBits, kJob = kJoin << kJoinedBits;
constexpr Index kMostPieces = Index(kJoin) - 1;
constexpr Index left_of(std::uint64_t ticket) { return Index(ticket & (kJoin - 1)); }
constexpr int joined_of(std::uint64_t ticket) { return int(ticket / kJoin % (1 << kJoinedBits)); }

// Never destroyed: helpers look at it until the process ends.
class Pool {
 public:
  // Calls call(body, piece) for [first, first + count), with so many helpers at most.
  void run(Index first, Index count, Call call, const void* body, int helpers) {
    start_helpers(helpers);
    helpers = patience_.helpers(std::min(helpers, started_));
    if (helpers == 0) {
      for (Index i = 0; i < count; ++i) call(body, first + i);
      return;
    }
    // Nothing is left of the last job, so that nobody can claim while these change.
    call_.store(call, std::memory_order_release);
    body_.store(body, std::memory_order_release);
    end_.store(first + count, std::memory_order_release);
    helpers_.store(helpers, std::memory_order_release);
    finished_.store(0, std::memory_order_relaxed);
    const Time begin = Clock::now();
    job_ += kJob;
    ticket_.store(job_ | std::uint64_t(count - 1));  // the first piece is the caller's
    wake(helpers);
    Index own = 0;
    for (Index piece = first; piece >= 0; piece = claim()) {
      call(body, piece);
      ++own;
    }
    if (own < count) wait_for_others(count - own, own, begin, helpers);
  }

  // One thread at a time may offer jobs. A thread that finds the pool taken works alone: in a parallel_for within
  // another, or beside another thread of the program.
  bool take() { return !taken_.exchange(true, std::memory_order_acquire); }
  void give_back() { taken_.store(false, std::memory_order_release); }

 private:
  // The next piece of the job in which the caller of this takes part, or -1.
  Index claim() {
    std::uint64_t ticket = ticket_.load();
    while (left_of(ticket) > 0 && !ticket_.compare_exchange_weak(ticket, ticket - 1)) {
    }
    return left_of(ticket) > 0 ? end_.load(std::memory_order_relaxed) - left_of(ticket) : -1;
  }

  void wait_for_others(Index others, Index own, Time begin, int helpers) {
    const auto pieces_done = [&] { return left_of(finished_.load()) == others; };
    if (pieces_done()) return;
    const Time waiting = Clock::now();
    const Seconds usual = (waiting - begin) / own;
    int late = 0;
    if (!spin_until(pieces_done, std::clamp(2 * usual, kSpin, kSpinLong))) {
      late = joined_of(ticket_.load()) - joined_of(finished_.load());
      for (std::uint32_t seen; left_of(seen = finished_.load()) != others;) finished_.wait(seen);
    }
    const Time end = Clock::now();
    patience_.add(end, end - waiting, usual, helpers, late);
  }

  void start_helpers(int count) {
    if (started_ >= count || failed_) return;
    if (started_ == 0) [[maybe_unused]]
      static const int once = pthread_atfork(nullptr, nullptr, after_fork);
    // Signals are for the threads of the program, whose system calls they must interrupt; faults are the thread's own.
    sigset_t signals, before;
    sigfillset(&signals);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGPROF}) sigdelset(&signals, fault);
    pthread_sigmask(SIG_BLOCK, &signals, &before);
    try {
      for (; started_ < count; ++started_) std::thread([this] { help_forever(); }).detach();
    } catch (const std::system_error&) {
      failed_ = true;  // a limit on threads: go on with those that there are
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  [[noreturn]] void help_forever() {
    for (;;) {
      if (spin_until([&] { return offered(ticket_.load()); }, kSpin)) {
        help();
        continue;
      }
      const std::uint32_t seen = wakes_.load();
      sleeping_.fetch_add(1);
      // A job that was offered before this thread counted as sleeping is seen here; a later one changes wakes_.
      if (!offered(ticket_.load())) wakes_.wait(seen);
    }
  }

  bool offered(std::uint64_t ticket) const {
    return left_of(ticket) > 0 && joined_of(ticket) < helpers_.load(std::memory_order_acquire);
  }

  void help() {
    std::uint64_t ticket = ticket_.load();
    const Call call = call_.load(std::memory_order_acquire);
    const void* body = body_.load(std::memory_order_acquire);
    const Index end = end_.load(std::memory_order_acquire);
    // What was read belongs to the ticket's job if the ticket is still the same when it joins and claims at once.
    if (!offered(ticket) || !ticket_.compare_exchange_strong(ticket, ticket + kJoin - 1)) return;
    own_index = joined_of(ticket) + 1;
    std::uint32_t done = 0;
    for (Index piece = end - left_of(ticket); piece >= 0; piece = claim()) {
      call(body, piece);
      ++done;
    }
    finished_.fetch_add(done + std::uint32_t(kJoin));
    finished_.notify_one();
  }

  void wake(int helpers) {
    const int sleeping = sleeping_.load();
    if (sleeping == 0) return;
    wakes_.fetch_add(1);
    if (sleeping <= helpers) {
      sleeping_.fetch_sub(sleeping);
      wakes_.notify_all();
      return;
    }
    sleeping_.fetch_sub(helpers);
    for (int i = 0; i < helpers; ++i) wakes_.notify_one();
  }

  static void after_fork();

  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  std::atomic<Call> call_{nullptr};
  std::atomic<const void*> body_{nullptr};
  std::atomic<Index> end_{0};
  std::atomic<int> helpers_{0};
  alignas(64) std::atomic<std::uint32_t> finished_{0};  // pieces, and helpers, laid out as in the ticket
  alignas(64) std::atomic<std::uint32_t> wakes_{0};
  std::atomic<int> sleeping_{0};
  alignas(64) std::atomic<bool> taken_{false};
  // The rest belongs to the one that has taken the pool.
  std::uint64_t job_ = 0;
  int started_ = 0;
  bool failed_ = false;
  Patience patience_;
};
static_assert(kLeftBits + kJoinedBits == 32 && kMostThreads <= 1 << kJoinedBits);

constinit Pool pool;

// A child of fork() has no helpers and starts its own.
void Pool::after_fork() {
  pool.started_ = 0;
  pool.sleeping_ = 0;
  pool.ticket_ = 0;
  pool.taken_ = false;
}

std::atomic<int> thread_count{0};  // 0: not asked yet

}  // namespace

void set_threads(int count) {
  check("threads", count >= 0 && count <= kMostThreads, count, " is not in 0 .. ", kMostThreads);
  thread_count = count == 0 ? usable_processors() : count;
}

int threads() {
  if (thread_count.load(std::memory_order_relaxed) == 0) set_threads(0);
  return thread_count.load(std::memory_order_relaxed);
}

int thread_index() { return own_index; }

namespace detail {

void share_work(Index pieces, Call call, const void* body) {
  if (!pool.take()) {
    for (Index i = 0; i < pieces; ++i) call(body, i);
    return;
  }
  const int helpers = int(std::min<Index>(threads(), pieces)) - 1;
  for (Index first = 0, count; first < pieces; first += count) {
    count = std::min(pieces - first, kMostPieces);
    pool.run(first, count, call, body, helpers);
  }
  pool.give_back();
}

}  // namespace detail
}  // namespace flexformer

#else  // OMP=0

namespace flexformer {

void set_threads(int count) { check("threads", count >= 0 && count <= 1024, count, " is not in 0 .. 1024"); }
int threads() { return 1; }
int thread_index() { return 0; }

void detail::share_work(Index pieces, void (*call)(const void*, Index), const void* body) {
  for (Index i = 0; i < pieces; ++i) call(body, i);
}

}  // namespace flexformer
#endif
