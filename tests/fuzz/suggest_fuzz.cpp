// suggest_config(): any file gives a config that parses, or an error.
#include "data/suggest_config.hpp"

#include "core/config.hpp"
#include "features/schema.hpp"
#include "fuzz/parquet_input.hpp"
#include "fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string path = paceline::fuzz::as_file(data, size);
  const auto text = paceline::data::suggest_config({path});
  if (!text) return 0;
  auto config = paceline::Config::parse(*text, "suggested.toml");
  PL_CHECK(config.ok(), config.error().text());
  const auto schema = paceline::features::Schema::from_config(*config);
  PL_CHECK(schema.ok(), schema.error().text());
  return 0;
}
