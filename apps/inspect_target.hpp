// What a data command looks at: the data of a config, or data with the config that they suggest.
#pragma once

#include <string>
#include <vector>

#include "core/error.hpp"
#include "train/train_config.hpp"

namespace paceline::app {

struct DataTarget {
  std::vector<std::string> paths;
  train::TrainConfig config;
  features::Schema schema;  // without labels where the data have none
  std::string config_file;  // empty: a suggested config
  bool has_labels = true;
};

// The config that `target` is (*.toml) or holds (a run directory); empty when it is data.
std::string config_file(const std::string& target);

// `targets` is one config or the paths of data; `split` is which of the config's data, "" without
// a choice (train). `overrides` are "section.key=value". The device in the config is not asked for.
// Errors: those of the config, a config among several targets, a split without a config.
Result<DataTarget> data_target(const std::vector<std::string>& targets, const std::string& split,
                               const std::vector<std::string>& overrides);

}  // namespace paceline::app
