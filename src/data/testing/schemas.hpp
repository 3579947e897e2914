// Schemas for tests of rows. For test programs only; failures abort.
#pragma once

#include <string>

#include "core/config.hpp"
#include "features/schema.hpp"

namespace paceline::data::testing {

inline features::Schema schema_of(const std::string& toml) {
  auto config = Config::parse(toml, "test.toml");
  PL_CHECK(config.ok(), config.error().text());
  auto schema = features::Schema::from_config(*config);
  PL_CHECK(schema.ok(), schema.error().text());
  return std::move(*schema);
}

}  // namespace paceline::data::testing
