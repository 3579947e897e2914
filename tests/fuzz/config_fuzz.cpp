// The config reader: any text is a config or an error that names a key.
#include <string_view>

#include "core/config.hpp"
#include "features/batch.hpp"
#include "features/schema.hpp"
#include "fuzz/target.hpp"
#include "train/train_config.hpp"

using paceline::Config;

namespace {

// What was read must read back to the same values.
void check_round_trip(const paceline::train::TrainConfig& read) {
  auto again = Config::parse(read.resolved, "resolved.toml", "/");
  PL_CHECK(again.ok(), "resolved() is TOML");
  auto same = paceline::train::TrainConfig::from_config(*again);
  PL_CHECK(same.ok(), "resolved() is a config");
  PL_CHECK(same->resolved == read.resolved, "resolved() keeps every value");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = Config::parse(text, "fuzz.toml", "/data");
  if (!config) return 0;
  if (auto train_config = Config::parse(text, "fuzz.toml", "/data"); train_config.ok()) {
    const auto train = paceline::train::TrainConfig::from_config(*train_config);
    if (train) check_round_trip(*train);
  }
  auto features_config = Config::parse(text, "fuzz.toml", "/data");
  PL_CHECK(features_config.ok(), "the same text again");
  const auto schema = paceline::features::Schema::from_config(*features_config);
  if (!schema) return 0;
  const auto limits = paceline::features::BatchLimits::from_config(*features_config, *schema);
  if (limits) {
    // A batch of these limits fits memory's address space; its size is computed without overflow.
    const paceline::features::BatchLayout layout(*schema, *limits);
    PL_CHECK(layout.total_bytes() > 0, "a batch has a size");
  }
  // An assignment as --set gives it: the first line of the text.
  const auto line = text.substr(0, text.find('\n'));
  auto overridden = Config::parse("", "fuzz.toml", "/data");
  PL_CHECK(overridden.ok(), "an empty config");
  paceline::discard(overridden->override_with(line));
  return 0;
}
