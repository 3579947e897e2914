// The other files of this folder with nothing ignored: compiles.
#include "core/error.hpp"
#include "pipeline/host_pipeline.hpp"

paceline::Result<void> save();
paceline::Result<int> count();

paceline::Result<int> use(paceline::pipeline::HostPipeline<int>& pipe) {
  PL_TRY_VOID(save());
  PL_TRY(const int n, count());
  paceline::discard(save());
  const auto state = pipe.claim();
  if (pipe.acquire(state) == paceline::pipeline::WaitResult::kReady) pipe.commit(state);
  return n;
}
