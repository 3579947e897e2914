#include "pipeline/worker.hpp"

#include <pthread.h>

#include <new>
#include <utility>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "pipeline/parking.hpp"

namespace paceline::pipeline {

struct Worker::Shared {
  std::string name;
  Body body;
  OnExit on_exit;
  std::chrono::milliseconds grace{};
  StopFlag stop;
  std::atomic<bool> done{false};
  EventCount finished;

  Result<void> call() noexcept {
    try {
      return body(stop);
    } catch (const std::bad_alloc&) {
      return Error(Code::kOutOfMemory, "out of memory in " + name);
    } catch (const std::exception& e) {
      return Error(Code::kInternal, name + ": " + e.what());
    } catch (...) {
      return Error(Code::kInternal, name + ": an unknown exception");
    }
  }

  void run() noexcept {
    Result<void> result = call();
    if (on_exit) {
      on_exit(std::move(result));
    } else {
      discard(std::move(result));
    }
    // What the body owns goes before the thread counts as done.
    body = {};
    on_exit = {};
    done.store(true);
    finished.notify();
  }
};

Worker::Worker(std::string name, Body body, OnExit on_exit, std::chrono::milliseconds grace)
    : shared_(std::make_shared<Shared>()) {
  shared_->name = std::move(name);
  shared_->body = std::move(body);
  shared_->on_exit = std::move(on_exit);
  shared_->grace = grace;
  thread_ = std::thread([shared = shared_] {
    // The kernel keeps 15 characters.
    pthread_setname_np(pthread_self(), shared->name.substr(0, 15).c_str());
    shared->run();
  });
}

Worker::~Worker() {
  request_stop();
  if (join_for(shared_->grace)) {
    thread_.join();
    return;
  }
  log::warning(shared_->name + " did not return within " + std::to_string(shared_->grace.count()) +
               " ms of a stop and is left behind");
  thread_.detach();
}

const std::string& Worker::name() const { return shared_->name; }
void Worker::request_stop() { shared_->stop.request(); }
bool Worker::done() const { return shared_->done.load(); }

bool Worker::join_for(std::chrono::milliseconds limit) {
  return shared_->finished.await([&] { return shared_->done.load(); }, Clock::now() + limit);
}

}  // namespace paceline::pipeline
