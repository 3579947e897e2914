// A schema that reads the columns of the corpus.
#pragma once

#include "core/config.hpp"
#include "core/error.hpp"
#include "features/schema.hpp"
#include "fuzz/memory_file.hpp"

namespace paceline::fuzz {

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
