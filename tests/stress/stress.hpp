// How long a search may take, and seeds that failed once.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "core/clock.hpp"

namespace paceline::stress {

inline double seconds() {
  const char* text = std::getenv("PL_STRESS_SECONDS");
  return text != nullptr ? std::strtod(text, nullptr) : 3.0;
}

// Seeds of `search` in seeds.txt: lines "<search> <seed>", tried first in every run.
inline std::vector<std::uint64_t> kept_seeds(const std::string& search) {
  std::vector<std::uint64_t> seeds;
  std::ifstream in(PACELINE_STRESS_SEEDS);
  std::string name;
  std::uint64_t seed = 0;
  while (in >> name >> seed) {
    if (name == search) seeds.push_back(seed);
  }
  return seeds;
}

// Calls try_seed(seed) -> std::string for kept seeds, then for new ones until the time is up.
// Empty, or the first failure; the seed then stands in failed_seeds.txt of the working folder,
// ready for seeds.txt.
template <typename TrySeed>
std::string search(const std::string& name, std::uint64_t& tried, TrySeed&& try_seed) {
  const auto failed = [&](std::uint64_t seed, const std::string& wrong) {
    std::ofstream("failed_seeds.txt", std::ios::app) << name << ' ' << seed << '\n';
    return name + " seed " + std::to_string(seed) + ": " + wrong;
  };
  for (const std::uint64_t seed : kept_seeds(name)) {
    if (const std::string wrong = try_seed(seed); !wrong.empty()) return failed(seed, wrong);
  }
  // Other seeds each time: a failure prints and keeps the one it needs.
  const auto start = Clock::now();
  auto seed = static_cast<std::uint64_t>(start.time_since_epoch().count());
  for (tried = 0; seconds_since(start) < seconds(); ++tried, ++seed) {
    if (const std::string wrong = try_seed(seed); !wrong.empty()) return failed(seed, wrong);
  }
  return {};
}

}  // namespace paceline::stress
