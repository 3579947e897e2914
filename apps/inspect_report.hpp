// How `paceline data inspect` shows what it found.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "data/inspect.hpp"

namespace paceline::app {

struct InspectedWith {
  std::string target;                // as the user named it
  std::string config;                // "suggested", or the config file's name
  std::int64_t shuffle_window = 16;  // data.shuffle_window
  int threads = 1;
};

// For people: at most 100 columns wide, but for names of files.
std::string inspection_text(const data::Inspection& found, const InspectedWith& with);
// For programs: the keys that docs/data.md names.
nlohmann::ordered_json inspection_json(const data::Inspection& found, const InspectedWith& with);

// Memory of two windows of decoded blocks, at most.
std::int64_t window_bytes(const data::Inspection& found, const InspectedWith& with);

}  // namespace paceline::app
