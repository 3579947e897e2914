#include <cuda_runtime.h>
#include <fmt/format.h>

#include "device/gpu.hpp"

namespace paceline::device {
namespace {

constexpr int kHopper = 9;

Error unavailable(const std::string& why) { return Error(Code::kUnavailable, why); }

// The error of a call that may fail without harm, forgotten by the runtime.
std::string reason(cudaError_t status) {
  static_cast<void>(cudaGetLastError());
  return cudaGetErrorString(status);
}

}  // namespace

bool cuda_built() { return true; }

Result<Gpu> find_gpu() {
  int count = 0;
  if (const auto status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    const std::string why = reason(status);
    if (status == cudaErrorInsufficientDriver) {
      return unavailable("there is no NVIDIA driver, or one older than CUDA 13.0 needs");
    }
    return unavailable(fmt::format("no GPU answers: {}", why));
  }
  if (count == 0) return unavailable("the NVIDIA driver lists no GPU");
  cudaDeviceProp properties{};
  if (const auto status = cudaGetDeviceProperties(&properties, 0); status != cudaSuccess) {
    return unavailable(fmt::format("the GPU does not answer: {}", reason(status)));
  }
  Gpu gpu;
  gpu.name = properties.name;
  gpu.major = properties.major;
  gpu.minor = properties.minor;
  gpu.multiprocessors = properties.multiProcessorCount;
  gpu.memory_bytes = properties.totalGlobalMem;
  if (gpu.major != kHopper) {
    return unavailable(
        fmt::format("{} is not a Hopper GPU (compute capability 9.0), the only kind that code is "
                    "compiled in for",
                    name_of(gpu)));
  }
  std::size_t total = 0;
  if (const auto status = cudaMemGetInfo(&gpu.free_bytes, &total); status != cudaSuccess) {
    return unavailable(fmt::format("{} cannot be used: {}", name_of(gpu), reason(status)));
  }
  static_cast<void>(cudaDriverGetVersion(&gpu.driver));
  static_cast<void>(cudaRuntimeGetVersion(&gpu.runtime));
  return gpu;
}

}  // namespace paceline::device
