// In place of the GPU's engine where no CUDA code is compiled in.
#if !PACELINE_CUDA_BUILT
#include "train/engine_cuda.hpp"

namespace paceline::train {
namespace {

Error not_built() { return {Code::kUnavailable, "this program was built without CUDA code"}; }

}  // namespace

Result<std::unique_ptr<StepEngine>> make_cuda_engine(const StepEngineOptions& /*options*/) {
  return not_built();
}
Result<std::unique_ptr<Scorer>> make_cuda_scorer(const ScorerOptions& /*options*/) {
  return not_built();
}
std::string cuda_engine_name(const DeviceChoice& device) { return device.name; }

}  // namespace paceline::train
#endif
