#include "pipeline/worker.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <new>
#include <system_error>
#include <utility>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "pipeline/parking.hpp"

namespace paceline::pipeline {
namespace {

std::atomic<bool> left_behind{false};

}  // namespace

struct Worker::Shared {
  std::string name;
  Body body;
  OnExit on_exit;
  std::chrono::milliseconds grace{};
  StopFlag stop;
  Result<void> result;            // published by `done`
  std::atomic<bool> done{false};  // the store in finish() pairs with the loads
  EventCount finished;

  Result<void> call() noexcept {
    try {
      return body(stop);
    } catch (const std::bad_alloc&) {
      return Error(Code::kOutOfMemory, fmt::format("{}: out of memory", name));
    } catch (const std::exception& e) {
      return Error(Code::kInternal, fmt::format("{}: unexpected exception: {}", name, e.what()));
    } catch (...) {
      return Error(Code::kInternal, fmt::format("{}: unexpected exception", name));
    }
  }

  // What the body owns goes before the thread counts as done.
  void finish(Result<void> outcome) noexcept {
    result = outcome;
    body = {};
    if (on_exit) on_exit(std::move(outcome));
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
  try {
    thread_ = std::thread([shared = shared_] {
      // The kernel keeps 15 characters.
      pthread_setname_np(pthread_self(), shared->name.substr(0, 15).c_str());
      shared->finish(shared->call());
    });
  } catch (const std::system_error& e) {
    shared_->finish(Error(Code::kUnavailable,
                          fmt::format("cannot start the thread {}: {}", shared_->name, e.what())));
  }
}

Worker::~Worker() {
  request_stop();
  if (!thread_.joinable()) return;
  if (join_for(shared_->grace)) {
    thread_.join();
    return;
  }
  log::warning(fmt::format("{} did not return within {} ms of a stop and is left behind",
                           shared_->name, shared_->grace.count()));
  left_behind.store(true);
  thread_.detach();
}

bool any_left_behind() { return left_behind.load(); }

const std::string& Worker::name() const { return shared_->name; }
void Worker::request_stop() { shared_->stop.request(); }
bool Worker::done() const { return shared_->done.load(); }

bool Worker::join_for(std::chrono::milliseconds limit) {
  return shared_->finished.await([&] { return shared_->done.load(); }, Clock::now() + limit);
}

Result<void> Worker::result() const {
  PL_CHECK(done(), "a result only after the body has returned");
  return shared_->result;
}

}  // namespace paceline::pipeline
