#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <mutex>
#include <thread>

#include "commands.hpp"
#include "core/log.hpp"

namespace paceline::app {
namespace {

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  // The terminal or connection is gone; under nohup that is to be ignored.
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
    sigaddset(&set, SIGHUP);
  }
  return set;
}

std::mutex handler_mutex;
std::function<void()> handler;       // of the first signal to stop; empty: end the process at once
std::function<void()> save_handler;  // of SIGUSR1

void on_save() {
  const std::lock_guard lock(handler_mutex);
  if (save_handler) save_handler();
}

void on_stop(bool again) {
  const std::lock_guard lock(handler_mutex);
  if (again || !handler) _exit(kExitStopped);
  log::warning("stopping: what is under way is finished; a second signal ends the process at once");
  handler();
}

}  // namespace

struct SignalWatcher::Impl {
  std::atomic<bool> done{false};
  std::thread thread;
};

SignalWatcher::SignalWatcher() : impl_(std::make_unique<Impl>()) {
  // A reader that went away (a pager, `head`) must not end a run: writes fail instead.
  std::signal(SIGPIPE, SIG_IGN);
  const sigset_t set = watched_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  impl_->thread = std::thread([impl = impl_.get(), set] {
    bool stopping = false;
    while (!impl->done.load(std::memory_order_acquire)) {  // pairs with the destructor's store
      const timespec wait{0, 20'000'000};
      const int signal = sigtimedwait(&set, nullptr, &wait);
      if (signal < 0) continue;
      if (signal == SIGUSR1) {
        on_save();
        continue;
      }
      on_stop(stopping);
      stopping = true;
    }
  });
}

SignalWatcher::~SignalWatcher() {
  impl_->done.store(true, std::memory_order_release);  // pairs with the loop's load
  impl_->thread.join();
}

StopOnSignal::StopOnSignal(std::function<void()> what) {
  const std::lock_guard lock(handler_mutex);
  handler = std::move(what);
}

StopOnSignal::~StopOnSignal() {
  const std::lock_guard lock(handler_mutex);
  handler = {};
}

SaveOnSignal::SaveOnSignal(std::function<void()> what) {
  const std::lock_guard lock(handler_mutex);
  save_handler = std::move(what);
}

SaveOnSignal::~SaveOnSignal() {
  const std::lock_guard lock(handler_mutex);
  save_handler = {};
}

}  // namespace paceline::app
