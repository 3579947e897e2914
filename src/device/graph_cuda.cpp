#include <cuda_runtime.h>

#include "device/graph.hpp"

namespace paceline::device {
namespace {

cudaStream_t raw(const Stream& s) { return static_cast<cudaStream_t>(s.handle()); }
cudaGraphExec_t raw(void* graph) { return static_cast<cudaGraphExec_t>(graph); }

}  // namespace

Graph Graph::capture(const Stream& stream, const std::function<void()>& launches) {
  check(cudaStreamBeginCapture(raw(stream), cudaStreamCaptureModeThreadLocal),
        "the begin of a capture");
  launches();
  cudaGraph_t captured = nullptr;
  check(cudaStreamEndCapture(raw(stream), &captured), "the end of a capture");
  cudaGraphExec_t made = nullptr;
  check(cudaGraphInstantiate(&made, captured, 0), "cudaGraphInstantiate");
  check(cudaGraphDestroy(captured), "cudaGraphDestroy");
  Graph graph;
  graph.handle_ = made;
  return graph;
}

Graph::~Graph() {
  if (handle_ != nullptr) static_cast<void>(cudaGraphExecDestroy(raw(handle_)));
}

void Graph::launch(const Stream& stream) const {
  check(cudaGraphLaunch(raw(handle_), raw(stream)), "the launch of a graph");
  launched("graph", stream);
}

}  // namespace paceline::device
