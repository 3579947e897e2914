#include "core/bytes.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <utility>

namespace paceline {
namespace {

constexpr double kKi = 1024.0;

// The first number in `file`; empty when there is none ("max").
std::optional<std::int64_t> number_in(const char* file) {
  std::ifstream in(file);
  std::int64_t n = 0;
  if (in >> n) return n;
  return {};
}

}  // namespace

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 10> kUnits{
      {{"", 1.0},
       {"B", 1.0},
       {"KiB", kKi},
       {"MiB", kKi * kKi},
       {"GiB", kKi * kKi * kKi},
       {"TiB", kKi * kKi * kKi * kKi},
       {"kB", 1e3},
       {"MB", 1e6},
       {"GB", 1e9},
       {"TB", 1e12}}};
  double amount = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount);
  if (error != std::errc{} || !std::isfinite(amount) || amount < 0) return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  for (const auto& [unit, factor] : kUnits) {
    if (text != unit) continue;
    const double bytes = std::floor(amount * factor);
    if (bytes >= 9.2e18) return {};
    return static_cast<std::int64_t>(bytes);
  }
  return {};
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array<const char*, 4> kNames{"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (amount /= kKi; amount >= 999.5 && unit + 1 < kNames.size(); amount /= kKi) ++unit;
  const int digits = amount < 9.995 ? 2 : amount < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", amount, digits, kNames[unit]);
}

std::int64_t machine_memory_bytes() {
  std::int64_t bytes = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) *
                       static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
  for (const char* limit :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    if (const auto n = number_in(limit); n && *n > 0) bytes = std::min(bytes, *n);
  }
  return bytes;
}

}  // namespace paceline
