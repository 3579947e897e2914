// A named thread with a result.
//
// Guarantee: the body runs once. Its Result, or the exception that it let out (as kOutOfMemory or
// kInternal), is handed to `on_exit` once, on the thread, before the thread counts as done.
// Mechanism: state shared between owner and thread, so that either may go first.
// Limits: a stop is a request: the body looks at its StopFlag, and its owner wakes it where it
// blocks (HostPipeline::stop). A body may be left behind, so it and on_exit must own what they use
// (shared_ptr), never refer to the owner's members. Both are destroyed before the thread counts as
// done. A system that gives no thread counts as the body's error (kUnavailable), on the caller.
// Shutdown: the destructor requests a stop and waits for the grace period; a body that does not
// return in it is named in the log and left behind.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "core/error.hpp"

namespace paceline::pipeline {

// True when a Worker was left behind in this process: what its call uses may still be in use, so
// end the process without taking it down.
bool any_left_behind();

// Shared between who asks for a stop and who looks for it. Copies are the same flag.
class StopFlag {
 public:
  StopFlag() : flag_(std::make_shared<std::atomic<bool>>(false)) {}
  void request() const { flag_->store(true); }
  bool requested() const { return flag_->load(); }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

class Worker {
 public:
  using Body = std::function<Result<void>(const StopFlag& stop)>;
  using OnExit = std::function<void(Result<void>)>;  // must not throw

  // Starts at once. `grace`: how long the destructor waits for the body.
  Worker(std::string name, Body body, OnExit on_exit = {},
         std::chrono::milliseconds grace = std::chrono::seconds(2));
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const std::string& name() const;
  void request_stop();
  bool done() const;
  // Waits until done; false when the body has not returned within `limit`.
  bool join_for(std::chrono::milliseconds limit);
  // What the body returned. Only when done.
  Result<void> result() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace paceline::pipeline
