#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <thread>

#include "commands.hpp"
#include "core/log.hpp"

namespace paceline::app {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void block_stop_signals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

struct StopOnSignal::Impl {
  std::atomic<bool> done{false};
  std::thread thread;
};

StopOnSignal::StopOnSignal(std::function<void()> on_stop) : impl_(new Impl) {
  impl_->thread = std::thread([impl = impl_, on_stop = std::move(on_stop)] {
    const sigset_t set = stop_signals();
    bool stopping = false;
    while (!impl->done.load(std::memory_order_acquire)) {  // pairs with the destructor's store
      const timespec wait{0, 50'000'000};
      if (sigtimedwait(&set, nullptr, &wait) < 0) continue;
      if (stopping) _exit(kExitStopped);
      stopping = true;
      log::warning("stopping: the step under way is finished and saved; once more to end at once");
      on_stop();
    }
  });
}

StopOnSignal::~StopOnSignal() {
  impl_->done.store(true, std::memory_order_release);  // pairs with the loop's load
  impl_->thread.join();
  delete impl_;
}

}  // namespace paceline::app
