// A sequence of launches, captured once and launched again as one.
#pragma once

#include <functional>
#include <utility>

#include "device/stream.hpp"

namespace paceline::device {

class Graph {
 public:
  Graph() = default;
  // What `launches` puts on the stream is captured and does not run. It must not wait for the GPU,
  // and what it points to must outlive the graph. Every kernel should have run once before.
  static Graph capture(const Stream& stream, const std::function<void()>& launches);
  Graph(Graph&& o) noexcept : handle_(std::exchange(o.handle_, nullptr)) {}
  Graph& operator=(Graph&& o) noexcept {
    std::swap(handle_, o.handle_);
    return *this;
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  // In stream order. Does not block the caller.
  void launch(const Stream& stream) const;
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  void* handle_ = nullptr;  // cudaGraphExec_t
};

}  // namespace paceline::device
