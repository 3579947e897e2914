#include "pipeline/task_pool.hpp"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/buffer.hpp"
#include "core/error.hpp"

// Of the OpenMP runtime that the GEMM library uses; declared here because clang 14 on Debian has no
// omp.h of its own.
extern "C" void omp_set_num_threads(int);

namespace paceline::pipeline {
namespace {

// About 20 us: longer than the gap between two ops of a step, short beside a scheduler's slice.
constexpr int kSpins = 400;

// A ticket is (round << 32) | chunks not yet claimed.
constexpr int kRoundShift = 32;
constexpr std::uint64_t kLeftMask = (std::uint64_t{1} << kRoundShift) - 1;

void relax() { __builtin_ia32_pause(); }

}  // namespace

// A chunk is claimed by taking one off the ticket. The fields of a round change only while nothing
// is left to claim, and a claim succeeds only if the ticket did not change since it was read, so
// that a worker that comes late finds either nothing or the right fields; nobody waits for it.
struct TaskPool::Shared {
  alignas(kCacheLine) std::atomic<std::uint64_t> ticket{0};
  std::atomic<Body> body{nullptr};  // these three are published by `ticket`
  std::atomic<void*> fn{nullptr};
  std::atomic<std::int64_t> chunks{0};
  alignas(kCacheLine) std::atomic<std::int64_t> finished{0};
  std::atomic<bool> stop{false};
  alignas(kCacheLine) std::atomic<int> sleepers{0};
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::thread> workers;
  std::exception_ptr failure;

  void work(int worker) {
    std::uint64_t now = ticket.load(std::memory_order_acquire);  // pairs with the store in run
    while ((now & kLeftMask) != 0) {
      const Body call = body.load(std::memory_order_relaxed);
      void* const with = fn.load(std::memory_order_relaxed);
      const std::int64_t all = chunks.load(std::memory_order_relaxed);
      if (!ticket.compare_exchange_weak(now, now - 1, std::memory_order_acquire)) continue;
      call_once(call, with, all - static_cast<std::int64_t>(now & kLeftMask), worker);
      finished.fetch_add(1, std::memory_order_release);  // pairs with the load in run
      now = ticket.load(std::memory_order_acquire);
    }
  }

  void join() {
    {
      const std::lock_guard lock(mutex);
      stop.store(true);
    }
    wake.notify_all();
    for (auto& worker : workers) worker.join();
  }

  // The first exception of a round waits here for the caller.
  void call_once(Body call, void* with, std::int64_t chunk, int worker) noexcept {
    try {
      call(with, chunk, worker);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  }

  bool idle() const { return (ticket.load() & kLeftMask) == 0; }

  // Returns when there may be work, or at the stop.
  void await_work() {
    for (int i = 0; i < kSpins; ++i) {
      if (!idle() || stop.load(std::memory_order_relaxed)) return;
      relax();
    }
    std::unique_lock lock(mutex);
    sleepers.fetch_add(1);
    wake.wait(lock, [&] { return !idle() || stop.load(); });
    sleepers.fetch_sub(1);
  }

  void loop(int worker) {
    omp_set_num_threads(1);
    while (!stop.load(std::memory_order_relaxed)) {
      await_work();
      work(worker);
    }
  }
};

TaskPool::TaskPool(int threads) : threads_(threads), shared_(std::make_unique<Shared>()) {
  PL_CHECK(threads >= 1, "at least one thread");
  try {
    for (int worker = 1; worker < threads; ++worker) {
      shared_->workers.emplace_back([shared = shared_.get(), worker] { shared->loop(worker); });
    }
  } catch (...) {
    // The system gives no more threads: those that run must not outlive this object.
    shared_->join();
    throw;
  }
}

TaskPool::~TaskPool() { shared_->join(); }

void TaskPool::run_erased(std::int64_t chunks, Body body, void* fn) {
  omp_set_num_threads(1);
  if (threads_ == 1 || chunks <= 1) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) body(fn, chunk, 0);
    return;
  }
  PL_CHECK(static_cast<std::uint64_t>(chunks) <= kLeftMask, "fewer than 2^32 chunks");
  Shared& s = *shared_;
  s.body.store(body, std::memory_order_relaxed);
  s.fn.store(fn, std::memory_order_relaxed);
  s.chunks.store(chunks, std::memory_order_relaxed);
  s.finished.store(0, std::memory_order_relaxed);
  const std::uint64_t round = (s.ticket.load(std::memory_order_relaxed) >> kRoundShift) + 1;
  // Sequentially consistent against `sleepers`, so that either this thread sees a sleeper or the
  // sleeper sees the work.
  s.ticket.store((round << kRoundShift) | static_cast<std::uint64_t>(chunks));
  if (s.sleepers.load() > 0) {
    { const std::lock_guard lock(s.mutex); }
    s.wake.notify_all();
  }
  s.work(0);
  int spins = 0;
  while (s.finished.load(std::memory_order_acquire) < chunks) {  // pairs with fetch_add in work()
    if (++spins < kSpins) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
  if (s.failure) std::rethrow_exception(std::exchange(s.failure, nullptr));
}

}  // namespace paceline::pipeline
