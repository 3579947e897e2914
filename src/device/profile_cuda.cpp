#include "device/profile.hpp"

#include <algorithm>
#include <deque>

#include "core/error.hpp"

namespace paceline::device {

struct Profile::Impl {
  const Stream& stream;
  std::deque<Event> marks;  // one before the first kernel, one after each
  std::vector<const char*> names;

  void mark() {
    marks.emplace_back(true);
    marks.back().record(stream);
  }
};

Profile::Profile(const Stream& stream) : impl_(std::make_unique<Impl>(Impl{stream, {}, {}})) {
  PL_CHECK(active_profile() == nullptr, "one profile at a time");
  active_profile() = this;
  impl_->mark();
}
Profile::~Profile() { active_profile() = nullptr; }

void Profile::mark(const char* kernel, const Stream& stream) {
  if (&stream != &impl_->stream) return;
  impl_->names.push_back(kernel);
  impl_->mark();
}

std::vector<KernelTime> Profile::finish() {
  active_profile() = nullptr;
  impl_->stream.synchronize();
  std::vector<KernelTime> kernels;
  for (std::size_t i = 0; i < impl_->names.size(); ++i) {
    const char* name = impl_->names[i];
    auto at = std::find_if(kernels.begin(), kernels.end(),
                           [&](const KernelTime& k) { return k.name == name; });
    if (at == kernels.end()) at = kernels.insert(at, KernelTime{name, 0, 0.0});
    ++at->launches;
    at->ms += static_cast<double>(elapsed_ms(impl_->marks[i], impl_->marks[i + 1]));
  }
  return kernels;
}

Profile*& active_profile() {
  thread_local Profile* active = nullptr;
  return active;
}

}  // namespace paceline::device
