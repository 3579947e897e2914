// How `paceline data inspect` shows what it found.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/inspect.hpp"

namespace paceline::app {

struct InspectedWith {
  std::string target;                // as the user named it
  std::string config;                // "suggested config", or the config file's name
  std::int64_t shuffle_window = 16;  // data.shuffle_window
  int threads = 1;
  bool has_labels = true;           // false: the data have no column of actions or targets
  std::vector<std::string> splits;  // folders of splits that were read together
};

// For people: at most 100 columns wide, but for names of files.
std::string inspection_text(const data::Inspection& found, const InspectedWith& with);
// For programs: the keys that docs/data.md names.
nlohmann::ordered_json inspection_json(const data::Inspection& found, const InspectedWith& with);

}  // namespace paceline::app
