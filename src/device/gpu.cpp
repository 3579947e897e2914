#include "device/gpu.hpp"

#include <fmt/format.h>

namespace paceline::device {

std::string name_of(const Gpu& gpu) {
  return fmt::format("{} ({}.{})", gpu.name, gpu.major, gpu.minor);
}

#if !PACELINE_CUDA_BUILT
bool cuda_built() { return false; }

Result<Gpu> find_gpu() {
  return Error(Code::kUnavailable,
               "this program was built without CUDA code; `make build` compiles it where nvcc of "
               "the CUDA 13.0 toolkit is found");
}
#endif

}  // namespace paceline::device
