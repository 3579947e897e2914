// The time of each kernel that one thread puts on one stream, by the name that it is launched with.
//
// While a profile lives, launched() marks the stream after every kernel. A kernel's time is that
// between two marks: copies and fills before it are counted to it, and so is time in which the
// stream had nothing to do. Marks cost about a microsecond each on the GPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/stream.hpp"

namespace paceline::device {

struct KernelTime {
  std::string name;
  int launches = 0;
  double ms = 0.0;
};

// One at a time for each thread. Launches on other streams are not counted.
class Profile {
 public:
  explicit Profile(const Stream& stream);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // By name, in the order of the first launch. Blocks until the stream is done; call once.
  std::vector<KernelTime> finish();

 private:
  friend void launched(const char* kernel, const Stream& stream);
  void mark(const char* kernel, const Stream& stream);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Of this thread; null: none.
Profile*& active_profile();

}  // namespace paceline::device
