// Some bytes as a file that the readers can open by name.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "core/error.hpp"

namespace paceline::fuzz {

// Replaces the content of this process's one memory file; returns its name.
inline std::string as_file(const std::uint8_t* data, std::size_t size) {
  static const int fd = ::memfd_create("fuzz", 0);
  PL_CHECK(fd >= 0, "a file in memory");
  PL_CHECK(::ftruncate(fd, 0) == 0, "an empty file");
  for (std::size_t done = 0; done < size;) {
    const auto n = ::pwrite(fd, data + done, size - done, static_cast<off_t>(done));
    PL_CHECK(n > 0, "room for the input");
    done += static_cast<std::size_t>(n);
  }
  return "/proc/self/fd/" + std::to_string(fd);
}

}  // namespace paceline::fuzz
