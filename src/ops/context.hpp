// What every op call gets besides its arguments: where to run and private scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/buffer.hpp"
#include "pipeline/task_pool.hpp"

namespace paceline::ops {

// CPU: ops split their work into chunks fixed by shapes alone and run them on the pool. Scratch is
// one buffer per worker, grown only during the first steps (reserve() ahead keeps it flat).
class Context {
 public:
  explicit Context(pipeline::TaskPool& pool)
      : pool_(&pool), scratch_(static_cast<std::size_t>(pool.threads())) {}

  pipeline::TaskPool& pool() const { return *pool_; }

  // At least `bytes` for `worker`, 256-byte aligned; contents are not kept between op calls.
  std::byte* scratch(int worker, std::size_t bytes) {
    auto& s = scratch_[static_cast<std::size_t>(worker)];
    if (s.size_bytes() < bytes) s = HostBuffer(bytes);
    return s.data();
  }
  // One buffer for a whole op call (partial sums by chunk), owned by the calling thread.
  std::byte* shared_scratch(std::size_t bytes) {
    if (shared_.size_bytes() < bytes) shared_ = HostBuffer(bytes);
    return shared_.data();
  }

 private:
  pipeline::TaskPool* pool_;
  std::vector<HostBuffer> scratch_;
  HostBuffer shared_;
};

}  // namespace paceline::ops
