// A source in memory whose reads can be made slow, failing, throwing or hanging. For test programs.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "data/source.hpp"
#include "data/testing/schemas.hpp"

namespace paceline::data::testing {

// What FakeSource rows are read as: user_id = dataset row, one candidate id column.
inline features::Schema fake_schema() {
  return schema_of(R"(
[[features]]
name = "item"
scope = "event"
kind = "id"
history_column = "history_item_id"
candidate_column = "candidate_item_id"
rows = 100
hashes = 1
[[actions]]
name = "like"
bit = 1
)");
}

class FakeSource final : public Source {
 public:
  // What read() does before it fills the block; an error or an exception goes to the caller.
  using Hook = std::function<Result<void>(std::int64_t block)>;

  // Row r has r % 5 history events and 1 + r % 3 candidates.
  explicit FakeSource(const std::vector<std::int64_t>& block_rows, Hook hook = {})
      : state_(std::make_shared<State>()) {
    state_->hook = std::move(hook);
    for (const auto n : block_rows) {
      blocks_.push_back({n, rows_, "fake, row group " + std::to_string(blocks_.size()), n * 128});
      rows_ += n;
    }
    state_->schema = fake_schema();
    state_->blocks = blocks_;
  }

  // These rows of the dataset are read as bad ones. Before the first read.
  void set_bad_rows(std::vector<std::int64_t> rows) {
    std::sort(rows.begin(), rows.end());
    state_->bad = std::move(rows);
  }

  const std::vector<BlockInfo>& blocks() const override { return blocks_; }
  std::int64_t rows() const override { return rows_; }
  std::uint64_t fingerprint() const override { return 0xF00D + static_cast<std::uint64_t>(rows_); }
  const std::vector<FileInfo>& files() const override { return files_; }
  std::int64_t reads() const { return state_->reads.load(); }

  Result<void> read(std::int64_t index, features::RowBlock& out) const override {
    const auto state = state_;
    state->reads.fetch_add(1);
    if (state->hook) PL_TRY_VOID(state->hook(index));
    fill(*state, state->blocks[static_cast<std::size_t>(index)], out);
    return {};
  }

 private:
  struct State {
    Hook hook;
    features::Schema schema;
    std::vector<BlockInfo> blocks;
    std::vector<std::int64_t> bad;
    std::atomic<std::int64_t> reads{0};
  };

  static void fill(const State& state, const BlockInfo& info, features::RowBlock& out) {
    out.rows = info.rows;
    out.first_row = info.first_row;
    out.bad_rows.clear();
    for (const auto row : state.bad) {
      if (row < info.first_row || row >= info.first_row + info.rows) continue;
      out.bad_rows.push_back({row - info.first_row, info.where + ": row " + std::to_string(row)});
    }
    out.history_offsets.assign(1, 0);
    out.candidate_offsets.assign(1, 0);
    for (std::int64_t r = 0; r < info.rows; ++r) {
      const std::int64_t row = info.first_row + r;
      out.history_offsets.push_back(out.history_offsets.back() + row % 5);
      out.candidate_offsets.push_back(out.candidate_offsets.back() + 1 + row % 3);
    }
    const auto& columns = state.schema.columns();
    out.columns.resize(columns.size());
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const auto count = columns[c].shape == features::Shape::kScalar ? info.rows
                         : columns[c].shape == features::Shape::kHistoryList
                             ? out.history_offsets.back()
                             : out.candidate_offsets.back();
      auto& ints = out.columns[c].ints;
      ints.resize(static_cast<std::size_t>(count));
      std::iota(ints.begin(), ints.end(), 1 + info.first_row * 100);
      if (static_cast<int>(c) == state.schema.user_column()) {
        std::iota(ints.begin(), ints.end(), info.first_row);
      }
    }
  }

  std::vector<BlockInfo> blocks_;
  std::vector<FileInfo> files_;
  std::int64_t rows_ = 0;
  std::shared_ptr<State> state_;
};

}  // namespace paceline::data::testing
