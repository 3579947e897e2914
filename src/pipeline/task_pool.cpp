#include "pipeline/task_pool.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
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

void relax() { __builtin_ia32_pause(); }

}  // namespace

struct TaskPool::Shared {
  // Written by the caller before `round` is published.
  Body body = nullptr;
  void* fn = nullptr;
  std::int64_t chunks = 0;

  alignas(kCacheLine) std::atomic<std::uint64_t> round{0};
  alignas(kCacheLine) std::atomic<std::int64_t> next{0};
  alignas(kCacheLine) std::atomic<int> busy{0};
  std::atomic<bool> stop{false};
  std::atomic<int> sleepers{0};
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::thread> workers;

  void work(int worker) {
    while (true) {
      const std::int64_t chunk = next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= chunks) return;
      body(fn, chunk, worker);
    }
  }

  // Returns the round after `seen`, or the same when stopping.
  std::uint64_t next_round(std::uint64_t seen) {
    for (int i = 0; i < kSpins; ++i) {
      // Pairs with the store in run_erased.
      const std::uint64_t now = round.load(std::memory_order_acquire);
      if (now != seen || stop.load(std::memory_order_relaxed)) return now;
      relax();
    }
    std::unique_lock lock(mutex);
    sleepers.fetch_add(1);
    wake.wait(lock, [&] { return round.load() != seen || stop.load(); });
    sleepers.fetch_sub(1);
    return round.load();
  }

  void loop(int worker) {
    omp_set_num_threads(1);
    std::uint64_t seen = 0;
    while (true) {
      const std::uint64_t now = next_round(seen);
      if (now == seen) return;
      seen = now;
      work(worker);
      busy.fetch_sub(1, std::memory_order_release);  // pairs with the load in run_erased
    }
  }
};

TaskPool::TaskPool(int threads) : threads_(threads), shared_(std::make_unique<Shared>()) {
  PL_CHECK(threads >= 1, "at least one thread");
  for (int worker = 1; worker < threads; ++worker) {
    shared_->workers.emplace_back([shared = shared_.get(), worker] { shared->loop(worker); });
  }
}

TaskPool::~TaskPool() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stop.store(true);
  }
  shared_->wake.notify_all();
  for (auto& worker : shared_->workers) worker.join();
}

void TaskPool::run_erased(std::int64_t chunks, Body body, void* fn) {
  omp_set_num_threads(1);
  if (threads_ == 1 || chunks <= 1) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) body(fn, chunk, 0);
    return;
  }
  Shared& s = *shared_;
  s.body = body;
  s.fn = fn;
  s.chunks = chunks;
  s.next.store(0, std::memory_order_relaxed);
  s.busy.store(threads_ - 1, std::memory_order_relaxed);
  // Publishes the fields above to the workers; sequentially consistent against `sleepers`, so that
  // either this thread sees a sleeper or the sleeper sees the round.
  s.round.fetch_add(1);
  if (s.sleepers.load() > 0) {
    { const std::lock_guard lock(s.mutex); }
    s.wake.notify_all();
  }
  s.work(0);
  int spins = 0;
  while (s.busy.load(std::memory_order_acquire) > 0) {  // pairs with fetch_sub in loop
    if (++spins < kSpins) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace paceline::pipeline
