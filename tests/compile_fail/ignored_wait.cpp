#include "pipeline/host_pipeline.hpp"

using paceline::pipeline::WaitResult;

bool take(paceline::pipeline::HostPipeline<int>& pipe, const paceline::PipelineState& state) {
#if defined(PACELINE_ALLOWED)
  return pipe.wait(state) == WaitResult::kReady;
#else
  pipe.wait(state);
  return true;
#endif
}
