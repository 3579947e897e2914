#include "core/error.hpp"

#include <cstdio>
#include <cstdlib>

namespace paceline {

std::string_view name_of(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kCorruptData:
      return "corrupt data";
    case Code::kIo:
      return "i/o error";
    case Code::kTimeout:
      return "timeout";
    case Code::kCancelled:
      return "cancelled";
    case Code::kOutOfMemory:
      return "out of memory";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kDevice:
      return "device error";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown error";
}

std::string Error::text() const {
  std::string out = message_;
  if (context_.empty()) return out;
  out += " (while ";
  for (std::size_t i = 0; i < context_.size(); ++i) {
    if (i > 0) out += "; while ";
    out += context_[i];
  }
  return out + ")";
}

namespace detail {

void check_failed(const char* condition, const std::string& assumed, Loc at) {
  std::fprintf(stderr, "%s:%d: broken assumption: %s (%s)\n", at.file, at.line, assumed.c_str(),
               condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace detail
}  // namespace paceline
