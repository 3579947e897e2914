// Which files become which split of a suggested config. Private to this room.
#pragma once

#include <string>
#include <vector>

namespace paceline::data {

struct Splits {
  std::string lines;               // keys of [data], a line each
  std::vector<std::string> train;  // what data.train names
};

// A single directory that holds train (a folder, or train.parquet) is taken apart into its splits;
// all else is train.
Splits find_splits(const std::vector<std::string>& paths);

}  // namespace paceline::data
