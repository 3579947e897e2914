// A fixed set of threads that run the chunks of one parallel loop at a time.
//
// Guarantee: run(n, f) calls f(chunk, worker) exactly once for each chunk in [0, n) and returns
// when all are done. Which worker runs which chunk is not fixed, so f must write only what belongs
// to its chunk; then no result depends on the thread count (law 1). worker is in [0, threads()) and
// names a private scratch area.
// Mechanism: chunks are claimed from one atomic counter; idle workers spin briefly, then sleep.
// Limits: one run at a time, from one thread at a time; f must not call run. An exception of f (no
// memory for scratch) is thrown again by run after all chunks; the constructor throws
// std::system_error when the system gives no thread.
// threads() == 1 runs everything on the caller. Each worker holds library threading at one
// (omp_set_num_threads(1)).
// Shutdown: the destructor joins the workers; no run may be under way.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace paceline::pipeline {

class TaskPool {
 public:
  // The caller counts as one of `threads` (>= 1).
  explicit TaskPool(int threads);
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  int threads() const { return threads_; }

  template <typename F>
  void run(std::int64_t chunks, F&& f) {
    using Fn = std::remove_reference_t<F>;
    run_erased(
        chunks,
        [](void* fn, std::int64_t chunk, int worker) { (*static_cast<Fn*>(fn))(chunk, worker); },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  using Body = void (*)(void* fn, std::int64_t chunk, int worker);
  void run_erased(std::int64_t chunks, Body body, void* fn);

  struct Shared;
  int threads_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace paceline::pipeline
