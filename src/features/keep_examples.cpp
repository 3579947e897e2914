#include <algorithm>
#include <cstring>

#include "features/batch.hpp"

namespace paceline::features {
namespace {

// Entries [first, first + count) of an array of `width`-byte entries move to its front.
void move_front(std::byte* array, std::int64_t first, std::int64_t count, std::size_t width) {
  std::memmove(array, array + static_cast<std::size_t>(first) * width,
               static_cast<std::size_t>(count) * width);
}

// Offsets [first, last] move to the front and count from 0 again; returns where they began.
std::int32_t rebase(std::int32_t* offsets, std::int32_t first, std::int32_t last) {
  const std::int32_t base = offsets[first];
  for (std::int32_t e = first; e <= last; ++e) offsets[e - first] = offsets[e] - base;
  return base;
}

}  // namespace

void keep_examples(Batch& b, std::int32_t first, std::int32_t last) {
  PL_CHECK(0 <= first && first <= last && last <= b.examples_, "examples of this batch");
  const BatchLayout& l = *b.layout_;
  const std::int64_t examples = last - first;
  auto* cu_tokens = b.at<std::int32_t>(l.cu_tokens);
  auto* cu_history = b.at<std::int32_t>(l.cu_history);
  auto* cu_candidates = b.at<std::int32_t>(l.cu_candidates);
  const std::int64_t token = rebase(cu_tokens, first, last);
  const std::int64_t event = rebase(cu_history, first, last);
  const std::int64_t candidate = rebase(cu_candidates, first, last);
  b.examples_ = static_cast<std::int32_t>(examples);
  b.tokens_ = cu_tokens[examples];
  b.history_tokens_ = cu_history[examples];
  b.candidate_tokens_ = cu_candidates[examples];

  const auto keep = [&b](const BatchLayout::Array& array, std::int64_t from, std::int64_t count,
                         std::size_t width) {
    move_front(b.at<std::byte>(array), from, count, width);
  };
  keep(l.history_len, first, examples, sizeof(std::int32_t));
  keep(l.candidate_len, first, examples, sizeof(std::int32_t));
  keep(l.user_id, first, examples, sizeof(std::int64_t));
  keep(l.dataset_row, first, examples, sizeof(std::int64_t));
  keep(l.positions, token, b.tokens_, sizeof(std::int32_t));
  keep(l.actions, candidate, b.candidate_tokens_, sizeof(std::uint64_t));
  for (const auto& target : l.targets) keep(target, candidate, b.candidate_tokens_, sizeof(float));
  for (int k = 0; k <= l.prefix_tokens() + 1; ++k) {
    const std::int64_t from = k < l.prefix_tokens()    ? first
                              : k == l.prefix_tokens() ? event
                                                       : candidate;
    for (const auto& f : l.features(k)) {
      const std::size_t element =
          f.kind == Kind::kMultiHot ? sizeof(std::uint64_t) : sizeof(std::int32_t);
      keep(f.array, from, b.entries(k), element * static_cast<std::size_t>(f.width));
    }
  }
}

}  // namespace paceline::features
