// A request to stop, that reaches whoever is waiting.
//
// request() may be called from any thread, more than once. requested() is what loops look at; a
// hook is called by request() so that a wait under way ends (e.g. a pipeline's stop()), or at once
// by its constructor when the request came before. A hook is not called after its destructor.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <utility>

namespace paceline::train {

class StopRequest {
 public:
  class Hook {
   public:
    Hook(StopRequest& request, std::function<void()> on_stop) : request_(request) {
      const std::lock_guard lock(request_.mutex_);
      if (request_.requested()) on_stop();
      place_ = request_.hooks_.insert(request_.hooks_.end(), std::move(on_stop));
    }
    ~Hook() {
      const std::lock_guard lock(request_.mutex_);
      request_.hooks_.erase(place_);
    }
    Hook(const Hook&) = delete;
    Hook& operator=(const Hook&) = delete;

   private:
    StopRequest& request_;
    std::list<std::function<void()>>::iterator place_;
  };

  void request() {
    const std::lock_guard lock(mutex_);
    requested_.store(true);
    for (const auto& hook : hooks_) hook();
  }
  bool requested() const { return requested_.load(); }

 private:
  std::atomic<bool> requested_{false};
  std::mutex mutex_;
  std::list<std::function<void()>> hooks_;
};

}  // namespace paceline::train
