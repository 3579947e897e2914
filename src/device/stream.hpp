// Streams and events of the GPU, and what happens when the GPU reports an error.
//
// An error of a kernel or a copy is sticky: the context cannot be used again and nothing computed
// since can be trusted. So it is fatal: the process logs what failed, the stream and the kernels
// launched last, and aborts; a run goes on from its newest checkpoint. Only running out of memory
// is an Error (memory.hpp).
// Threads: one Stream or Event is used by one thread at a time.
#pragma once

#include <string>

namespace paceline::device {

class Stream;

class Event {
 public:
  // Timed events can be given to elapsed_ms.
  explicit Event(bool timed = false);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Stream& stream);
  // Blocks the caller until what was recorded is done; at once when nothing was.
  void wait() const;
  bool done() const;
  void* handle() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

// Both timed and done.
float elapsed_ms(const Event& begin, const Event& end);

class Stream {
 public:
  // `name` is what errors and traces call it.
  explicit Stream(std::string name);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // What is launched from now on runs after what was recorded. Does not block the caller.
  void wait_for(const Event& event) const;
  // Blocks the caller until everything launched is done.
  void synchronize() const;
  const std::string& name() const { return name_; }
  void* handle() const { return handle_; }  // cudaStream_t

 private:
  std::string name_;
  void* handle_ = nullptr;
};

// Call after every kernel launch: fatal when the launch was refused; keeps the name for the report
// of a later error. `kernel` must be a literal.
void launched(const char* kernel, const Stream& stream);

// Holds the stream up for so long, in stream order: for tests of what waits for what.
void delay(const Stream& stream, int microseconds);

// For calls of the CUDA runtime: `status` is a cudaError_t, 0 is success. Fatal otherwise.
void check(int status, const char* what);

}  // namespace paceline::device
