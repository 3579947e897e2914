// One random run of the batch pipeline, for property tests: a dataset, a window, limits, depths,
// readers and ranks drawn from a seed; bad rows and blocks; the run is left at random places and
// gone on with under other limits and another number of ranks each time. Over all ranks and lives
// every good row must come once per epoch, in the global order, and no bad one ever.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/rng.hpp"
#include "data/global_order.hpp"
#include "data/testing/deliveries.hpp"
#include "data/testing/fake_source.hpp"

namespace paceline::data::testing {

class ExactlyOnce {
 public:
  ExactlyOnce(std::uint64_t seed, std::uint64_t round)
      : rng_(seed, RngStream::kTest),
        round_(round),
        schema_(fake_schema()),
        blocks_(draw_blocks()),
        broken_(draw_broken()),
        source_(blocks_,
                [this](std::int64_t b) -> Result<void> {
                  if (broken_.contains(b)) return Error(Code::kCorruptData, "broken on purpose");
                  return {};
                }),
        window_(draw(0, 14)),
        epochs_(draw(1, 2)) {
    if (draw(0, 2) == 0 && source_.rows() > 0) {
      for (std::int64_t i = draw(1, 5); i > 0; --i) bad_.insert(draw(0, source_.rows() - 1));
      source_.set_bad_rows({bad_.begin(), bad_.end()});
    }
  }

  // Empty, or what went wrong.
  std::string run() {
    Position at;
    for (int life = 0;; ++life) {
      if (life == 1000) return "no end in sight";
      bool ended = false;
      if (std::string wrong = live(at, ended); !wrong.empty()) return wrong;
      if (ended) break;
    }
    if (at.rows > epochs_ * source_.rows()) return "more rows were consumed than there are";
    for (std::int64_t e = 0; e < epochs_; ++e) {
      if (seen_[static_cast<std::size_t>(e)] != expected(e)) {
        return "epoch " + std::to_string(e) + " is not the global order of its good rows";
      }
    }
    return {};
  }

 private:
  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(
                     rng_.below(static_cast<std::uint64_t>(high - low + 1), round_, draws_++));
  }

  std::vector<std::int64_t> draw_blocks() {
    std::vector<std::int64_t> blocks(static_cast<std::size_t>(draw(1, 12)));
    for (auto& b : blocks) b = draw(0, 3) == 0 ? draw(0, 1) : draw(0, 40);
    return blocks;
  }
  std::set<std::int64_t> draw_broken() {
    std::set<std::int64_t> broken;
    if (draw(0, 2) > 0) return broken;
    for (std::int64_t i = draw(1, 3); i > 0; --i) {
      broken.insert(draw(0, static_cast<std::int64_t>(blocks_.size()) - 1));
    }
    return broken;
  }

  bool good(std::int64_t row) const {
    if (bad_.contains(row)) return false;
    const auto& infos = source_.blocks();
    const auto after =
        std::upper_bound(infos.begin(), infos.end(), row,
                         [](std::int64_t r, const BlockInfo& b) { return r < b.first_row; });
    // Empty blocks share their first row with the block that holds it.
    return !broken_.contains(after - infos.begin() - 1);
  }

  std::vector<std::int64_t> expected(std::int64_t epoch) const {
    const GlobalOrder order(source_.blocks(), source_.fingerprint(), kSeed, epoch, window_);
    std::vector<std::int64_t> rows;
    for (std::int64_t w = 0; w < order.windows(); ++w) {
      const auto span = order.window(w);
      std::vector<std::int64_t> window_rows;
      for (std::int64_t p = span.first_place; p < span.last_place; ++p) {
        const auto& info = source_.blocks()[static_cast<std::size_t>(order.block_at(p))];
        for (std::int64_t r = 0; r < info.rows; ++r) window_rows.push_back(info.first_row + r);
      }
      const auto place = order.rows_of(w);
      for (std::size_t k = 0; k < window_rows.size(); ++k) {
        const std::int64_t row = window_rows[static_cast<std::size_t>(place(k))];
        if (good(row)) rows.push_back(row);
      }
    }
    return rows;
  }

  BatchPipelineOptions draw_options() {
    BatchPipelineOptions o;
    o.limits = {.examples = static_cast<std::int32_t>(draw(1, 20)),
                .tokens = draw(0, 1) == 0 ? 0 : static_cast<std::int32_t>(draw(8, 60)),
                .history_len = 8,
                .candidates = 4};
    o.shuffle_window = window_;
    o.seed = kSeed;
    o.epochs = epochs_;
    o.ranks = static_cast<int>(draw(0, 1) == 0 ? 1 : draw(2, 5));
    o.skip_bad_rows = static_cast<std::int64_t>(bad_.size());
    o.skip_bad_blocks = static_cast<std::int64_t>(broken_.size());
    return o;
  }

  // All ranks from `at` on for some batches; moves `at` to the last one that all of them trained.
  std::string live(Position& at, bool& ended) {
    const BatchPipelineOptions shared = draw_options();
    std::vector<std::unique_ptr<BatchPipeline>> ranks;
    for (int r = 0; r < shared.ranks; ++r) {
      BatchPipelineOptions o = shared;
      o.rank = r;
      o.depth = static_cast<int>(draw(1, 5));
      o.readers = static_cast<int>(draw(1, 4));
      o.leases = static_cast<int>(draw(1, 3));
      o.overlap = draw(0, 3) != 0;
      o.fetch_at_creation = draw(0, 1) == 0;
      auto pipeline = BatchPipeline::create(source_, schema_, o, at);
      if (!pipeline) return pipeline.error().text();
      ranks.push_back(std::move(*pipeline));
    }
    const std::int64_t most = draw(0, 3) == 0 ? 1'000'000 : draw(1, 30);
    for (std::int64_t batch = 0; batch < most && !ended; ++batch) {
      if (std::string wrong = step(ranks, ended); !wrong.empty()) return wrong;
    }
    // A batch that was fetched and not trained comes again.
    if (!ended && draw(0, 1) == 0) {
      for (auto& rank : ranks) static_cast<void>(rank->next_batch().ok());
    }
    at = ranks[0]->offsets_to_commit();
    for (auto& rank : ranks) {
      if (rank->offsets_to_commit() != at) return "ranks stand at different positions";
    }
    return {};
  }

  // One batch on every rank.
  std::string step(std::vector<std::unique_ptr<BatchPipeline>>& ranks, bool& ended) {
    std::vector<std::int64_t> rows;
    std::int64_t epoch = 0, examples = 0, tokens = 0, all = 0, all_tokens = 0, longest = 0;
    std::vector<std::int64_t> shares;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      auto fetched = ranks[r]->next_batch();
      if (!fetched) return fetched.error().text();
      if (fetched->state == FetchState::kEnd) {
        if (r > 0 && !ended) return "one rank ended before another";
        ended = true;
        continue;
      }
      if (ended || fetched->state != FetchState::kBatch) return "ranks do not end together";
      const auto& batch = fetched->lease.batch();
      rows.insert(rows.end(), batch.dataset_row().begin(), batch.dataset_row().end());
      const auto cu = batch.cu_tokens();
      for (std::size_t e = 0; e + 1 < cu.size(); ++e) {
        longest = std::max<std::int64_t>(longest, cu[e + 1] - cu[e]);
      }
      examples += batch.examples();
      tokens += batch.tokens();
      shares.push_back(batch.tokens());
      all = fetched->lease.global().examples;
      all_tokens = fetched->lease.global().tokens;
      epoch = fetched->lease.epoch();
      fetched->lease.mark_trained();
    }
    if (ended) return {};
    if (examples != all || tokens != all_tokens) return "shares do not add up to the batch";
    const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
    if (*most - *least > 2 * longest) return "shares are unequal";
    auto& to = seen_[static_cast<std::size_t>(epoch)];
    to.insert(to.end(), rows.begin(), rows.end());
    return {};
  }

  static constexpr std::uint64_t kSeed = 3;
  CounterRng rng_;
  std::uint64_t round_, draws_ = 0;
  features::Schema schema_;
  std::vector<std::int64_t> blocks_;
  std::set<std::int64_t> broken_, bad_;
  FakeSource source_;
  std::int64_t window_, epochs_;
  std::array<std::vector<std::int64_t>, 2> seen_;
};

}  // namespace paceline::data::testing
