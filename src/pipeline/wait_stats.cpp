#include "pipeline/wait_stats.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace paceline::pipeline {

std::string stall_text(std::string_view name, const std::vector<Stall>& stalls) {
  auto longest_first = stalls;
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [](const Stall& a, const Stall& b) { return a.waited_ns > b.waited_ns; });
  std::string text;
  for (const Stall& stall : longest_first) {
    const double seconds = static_cast<double>(stall.waited_ns) * 1e-9;
    text += text.empty() ? fmt::format("{}: ", name) : "; ";
    if (stall.side == PipelineUserType::kConsumer) {
      text += fmt::format("the consumer has waited {:.1f} s for item {}", seconds, stall.item);
    } else {
      text += fmt::format("a producer has waited {:.1f} s for slot {} (item {})", seconds,
                          stall.item % stall.num_stages, stall.item);
    }
  }
  return text;
}

}  // namespace paceline::pipeline
