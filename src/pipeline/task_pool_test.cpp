#include "pipeline/task_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <set>
#include <thread>
#include <vector>

extern "C" int omp_get_max_threads();

namespace paceline::pipeline {
namespace {

TEST(TaskPool, EachChunkRunsOnce) {
  for (int threads = 1; threads <= 8; ++threads) {
    TaskPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t chunks : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(chunks));
      std::atomic<bool> worker_in_range{true};
      pool.run(chunks, [&](std::int64_t chunk, int worker) {
        runs[static_cast<std::size_t>(chunk)].fetch_add(1);
        if (worker < 0 || worker >= threads) worker_in_range = false;
      });
      for (const auto& n : runs) ASSERT_EQ(n.load(), 1);
      EXPECT_TRUE(worker_in_range);
    }
  }
}

// Rounds that follow at once, with other closures and other counts: a worker that comes late must
// not run a chunk of a round with the closure of another. Chunks write without atomics: run() must
// make them visible.
TEST(TaskPool, RoundsDoNotMix) {
  TaskPool pool(4);
  std::vector<std::int64_t> out(16);
  for (std::int64_t round = 0; round < 3000; ++round) {
    const std::int64_t chunks = 2 + round % 15;
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pool.run(chunks, [&, round](std::int64_t chunk, int) {
      out[static_cast<std::size_t>(chunk)] += round;
    });
    for (auto& value : out) {
      const bool ran = &value - out.data() < chunks;
      ASSERT_EQ(value, ran ? round : 0) << "round " << round;
      value = 0;
    }
  }
}

// Partial sums by chunk, added in the order of the chunks: the same bits for any thread count.
TEST(TaskPool, NoResultDependsOnTheThreadCount) {
  constexpr std::int64_t kChunks = 37;
  const auto sum = [](int threads) {
    TaskPool pool(threads);
    std::vector<float> partial(kChunks);
    pool.run(kChunks, [&](std::int64_t chunk, int) {
      float total = 0;
      for (std::int64_t i = 0; i < 100 + chunk; ++i) {
        total += 1.0F / static_cast<float>(1 + chunk * 131 + i);
      }
      partial[static_cast<std::size_t>(chunk)] = total;
    });
    float total = 0;
    for (const float p : partial) total += p;
    return total;
  };
  const float expected = sum(1);
  for (int threads = 2; threads <= 8; ++threads) EXPECT_EQ(sum(threads), expected) << threads;
}

TEST(TaskPool, AWorkerIsOneThreadAtATime) {
  TaskPool pool(3);
  std::vector<std::atomic<int>> inside(3);
  std::atomic<bool> shared{false};
  for (int round = 0; round < 200; ++round) {
    pool.run(32, [&](std::int64_t, int worker) {
      auto& mine = inside[static_cast<std::size_t>(worker)];
      if (mine.fetch_add(1) != 0) shared = true;
      mine.fetch_sub(1);
    });
  }
  EXPECT_FALSE(shared);
}

TEST(TaskPool, WorkersTakePart) {
  TaskPool pool(2);
  std::atomic<int> inside{0};
  // Each chunk waits for the other: it ends only if two threads run.
  pool.run(2, [&](std::int64_t, int) {
    inside.fetch_add(1);
    while (inside.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(inside.load(), 2);
}

TEST(TaskPool, WakesSleepersAndStopsWhileTheySleep) {
  for (int i = 0; i < 20; ++i) {
    TaskPool pool(3);
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> inside{0};
    pool.run(3, [&](std::int64_t, int) {
      inside.fetch_add(1);
      while (inside.load() < 3) std::this_thread::yield();
    });
    if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST(TaskPool, LibraryThreadingIsOne) {
  TaskPool pool(3);
  std::atomic<int> most{0};
  std::atomic<int> inside{0};
  pool.run(3, [&](std::int64_t, int) {
    inside.fetch_add(1);
    while (inside.load() < 3) std::this_thread::yield();
    int seen = most.load();
    while (seen < omp_get_max_threads() && !most.compare_exchange_weak(seen, omp_get_max_threads()))
      ;
  });
  EXPECT_EQ(most.load(), 1);
}

TEST(TaskPool, AnExceptionReachesTheCaller) {
  for (const int threads : {1, 3}) {
    TaskPool pool(threads);
    std::atomic<int> runs{0};
    const auto throwing = [&](std::int64_t chunk, int) {
      runs.fetch_add(1);
      if (chunk == 5) throw std::bad_alloc();
    };
    EXPECT_THROW(pool.run(20, throwing), std::bad_alloc);
    EXPECT_EQ(runs.load(), threads > 1 ? 20 : 6) << "one thread stops at the exception";
    runs = 0;
    pool.run(4, throwing);
    EXPECT_EQ(runs.load(), 4) << "the pool goes on";
  }
}

}  // namespace
}  // namespace paceline::pipeline
