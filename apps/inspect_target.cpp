#include "inspect_target.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "data/suggest_config.hpp"

namespace paceline::app {
namespace {

namespace fs = std::filesystem;

Result<void> read_config(Config config, const std::vector<std::string>& overrides, DataTarget& t) {
  // Data can be looked at where they cannot be trained on.
  PL_TRY_VOID(config.override_with("train.device=auto"));
  for (const auto& assignment : overrides) PL_TRY_VOID(config.override_with(assignment));
  PL_TRY(t.config, train::TrainConfig::from_config(config));
  t.schema = t.config.schema;
  return {};
}

}  // namespace

std::string config_file(const std::string& target) {
  std::error_code ignored;
  const fs::path path(target);
  if (path.extension() == ".toml") return target;
  const auto inside = path / "config.toml";
  return fs::is_regular_file(inside, ignored) ? inside.string() : "";
}

Result<DataTarget> data_target(const std::vector<std::string>& targets, const std::string& split,
                               const std::vector<std::string>& overrides) {
  DataTarget t;
  const bool config = std::any_of(targets.begin(), targets.end(),
                                  [](const auto& target) { return !config_file(target).empty(); });
  if (config && targets.size() > 1) {
    return Error(Code::kInvalidArgument, "found a config and more, allowed is one config, or data");
  }
  if (config) {
    t.config_file = config_file(targets[0]);
    PL_TRY(auto loaded, Config::load(t.config_file));
    PL_TRY_VOID(read_config(std::move(loaded), overrides, t));
    PL_TRY(t.paths, t.config.data.split(split.empty() ? "train" : split));
    return t;
  }
  if (!split.empty()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--split {}: found data, a split is chosen of a config; name the "
                             "folder or files of the split instead",
                             split));
  }
  PL_TRY(const auto suggested, data::suggest(targets));
  PL_TRY(auto parsed, Config::parse(suggested.toml, "suggested config"));
  PL_TRY_VOID(read_config(std::move(parsed), overrides, t));
  t.has_labels = suggested.has_labels;
  if (!t.has_labels) t.schema = t.schema.without_labels();
  t.paths = targets;
  return t;
}

}  // namespace paceline::app
