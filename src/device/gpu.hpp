// The GPU of this process, found once. One process uses one GPU: the first that is visible
// (CUDA_VISIBLE_DEVICES chooses).
#pragma once

#include <cstddef>
#include <string>

#include "core/error.hpp"

namespace paceline::device {

struct Gpu {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
  std::size_t free_bytes = 0;
  int driver = 0, runtime = 0;  // as 13000 for 13.0
};

// True when CUDA code is compiled in.
bool cuda_built();

// kUnavailable with the reason: no CUDA code, no driver, no GPU, or one older than Hopper, for
// which no code is compiled in.
Result<Gpu> find_gpu();

// "NVIDIA H200 (9.0)"
std::string name_of(const Gpu& gpu);

}  // namespace paceline::device
