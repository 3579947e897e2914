#include <cuda_runtime.h>
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <utility>

#include "core/log.hpp"
#include "device/profile.hpp"
#include "device/stream.hpp"

namespace paceline::device {
namespace {

// The kernels that this thread launched last, newest at `count - 1`. A stream may be gone by the
// time its name is printed, so the name is copied.
struct Launch {
  const char* kernel = nullptr;
  std::array<char, 32> stream{};
};
struct Launches {
  static constexpr std::size_t kKept = 16;
  std::array<Launch, kKept> kept{};
  std::size_t count = 0;
};
thread_local Launches launches;

std::string last_launches() {
  std::string text;
  for (std::size_t i = 0; i < Launches::kKept && i < launches.count; ++i) {
    const std::size_t at = (launches.count - 1 - i) % Launches::kKept;
    const Launch& launch = launches.kept[at];
    text += fmt::format("{}{} on {}", i == 0 ? "" : ", ", launch.kernel, launch.stream.data());
  }
  return text.empty() ? "none by this thread" : text;
}

[[noreturn]] void fatal(cudaError_t status, const std::string& what) {
  log::error(
      fmt::format("the GPU failed in {}: {}; launched last, newest first: {}; the run goes "
                  "on from its newest checkpoint when it is started again",
                  what, cudaGetErrorString(status), last_launches()));
  std::abort();
}

cudaStream_t raw(const Stream& s) { return static_cast<cudaStream_t>(s.handle()); }
cudaEvent_t raw(const Event& e) { return static_cast<cudaEvent_t>(e.handle()); }

}  // namespace

void check(int status, const char* what) {
  if (status != cudaSuccess) fatal(static_cast<cudaError_t>(status), what);
}

void launched(const char* kernel, const Stream& stream) {
  Launch& launch = launches.kept[launches.count++ % Launches::kKept];
  launch.kernel = kernel;
  const std::size_t length = stream.name().copy(launch.stream.data(), launch.stream.size() - 1);
  launch.stream[length] = '\0';
  if (const auto status = cudaGetLastError(); status != cudaSuccess) {
    fatal(status, fmt::format("the launch of {} on stream {}", kernel, stream.name()));
  }
  if (Profile* profile = active_profile(); profile != nullptr) profile->mark(kernel, stream);
}

void delay(const Stream& stream, int microseconds) {
  const auto sleep = [](void* how_long) {
    std::this_thread::sleep_for(
        std::chrono::microseconds(reinterpret_cast<std::intptr_t>(how_long)));
  };
  check(cudaLaunchHostFunc(raw(stream), sleep,
                           reinterpret_cast<void*>(static_cast<std::intptr_t>(microseconds))),
        "cudaLaunchHostFunc");
}

Event::Event(bool timed) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreate");
  handle_ = event;
}
Event::~Event() { static_cast<void>(cudaEventDestroy(raw(*this))); }
void Event::record(const Stream& stream) {
  check(cudaEventRecord(raw(*this), raw(stream)), "cudaEventRecord");
}
void Event::wait() const { check(cudaEventSynchronize(raw(*this)), "a wait for an event"); }
bool Event::done() const {
  const auto status = cudaEventQuery(raw(*this));
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  check(status, "cudaEventQuery");
  return true;
}

float elapsed_ms(const Event& begin, const Event& end) {
  float ms = 0.0F;
  check(cudaEventElapsedTime(&ms, raw(begin), raw(end)), "cudaEventElapsedTime");
  return ms;
}

Stream::Stream(std::string name) : name_(std::move(name)) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  handle_ = stream;
}
Stream::~Stream() { static_cast<void>(cudaStreamDestroy(raw(*this))); }
void Stream::wait_for(const Event& event) const {
  check(cudaStreamWaitEvent(raw(*this), raw(event), 0), "cudaStreamWaitEvent");
}
void Stream::synchronize() const {
  if (const auto status = cudaStreamSynchronize(raw(*this)); status != cudaSuccess) {
    fatal(status, fmt::format("work on stream {}", name_));
  }
}

}  // namespace paceline::device
