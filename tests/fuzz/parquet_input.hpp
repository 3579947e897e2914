// Some bytes as a file that the readers can open by name, and a schema that reads its columns.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "core/config.hpp"
#include "core/error.hpp"
#include "features/schema.hpp"

namespace paceline::fuzz {

// Replaces the content of this process's one memory file; returns its name.
inline std::string as_file(const std::uint8_t* data, std::size_t size) {
  static const int fd = ::memfd_create("fuzz.parquet", 0);
  PL_CHECK(fd >= 0, "a file in memory");
  PL_CHECK(::ftruncate(fd, 0) == 0, "an empty file");
  for (std::size_t done = 0; done < size;) {
    const auto n = ::pwrite(fd, data + done, size - done, static_cast<off_t>(done));
    PL_CHECK(n > 0, "room for the input");
    done += static_cast<std::size_t>(n);
  }
  return "/proc/self/fd/" + std::to_string(fd);
}

// Reads what make_seeds.py writes: every shape and element of columns.
inline const features::Schema& seed_schema() {
  static const features::Schema schema = [] {
    auto config = Config::parse(R"(
[[features]]
name = "user"
scope = "user"
kind = "id"
column = "user_id"
rows = 16
[[features]]
name = "age"
scope = "history"
kind = "bucket"
history_column = "history_time"
minus = "request_time"
[[features]]
name = "item"
scope = "event"
kind = "id"
history_column = "history_item"
candidate_column = "candidate_item"
rows = 16
[[features]]
name = "done"
scope = "history"
kind = "multi_hot"
history_column = "history_mask"
size = 4
[[features]]
name = "price"
scope = "candidate"
kind = "number"
candidate_column = "candidate_price"
[[actions]]
name = "like"
bit = 1
)",
                                "seed.toml");
    PL_CHECK(config.ok(), config.error().text());
    auto read = features::Schema::from_config(*config);
    PL_CHECK(read.ok(), read.error().text());
    return std::move(*read);
  }();
  return schema;
}

}  // namespace paceline::fuzz
