// What inspect() counts while it reads. One tally per thread, merged at the end. Private to this
// room.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "data/distinct.hpp"
#include "data/inspect.hpp"
#include "features/batch.hpp"

namespace paceline::data {

// How often each length was seen.
class LengthCounts {
 public:
  void add(std::int64_t length, std::int64_t rows = 1);
  void merge(const LengthCounts& other);
  LengthReport report() const;

 private:
  static constexpr std::size_t kDense = 4096;
  std::vector<std::int64_t> dense_ = std::vector<std::int64_t>(kDense, 0);
  std::map<std::int64_t, std::int64_t> sparse_;  // of kDense and more
};

struct BlockPlace {
  std::size_t file = 0;  // in the order of files
  std::int64_t row_group = 0;
  std::int64_t first_row = 0;  // within the file
};

class Tally {
 public:
  // `files`: names, by BlockPlace::file. Schema, layout and names must outlive it.
  Tally(const features::Schema& schema, const features::BatchLayout& layout,
        const std::vector<std::string>& files, std::int64_t max_listed);

  // Places must come in ascending order.
  void add(const features::RowBlock& block, const BlockPlace& place);
  void refuse_block(const BlockPlace& place, std::int64_t rows, const std::string& why);
  // Counts what is left of the last batch.
  void finish();

  void merge(const Tally& other);
  // Adds to what is refused in `out`, sets the rest.
  void report(Inspection& out) const;

 private:
  struct Place {
    BlockPlace block;
    std::int64_t row;  // within the file, or -1
    std::string why;
    friend bool operator<(const Place& a, const Place& b) {
      return std::tie(a.block.file, a.block.row_group, a.row) <
             std::tie(b.block.file, b.block.row_group, b.row);
    }
  };
  struct Reason {
    std::int64_t rows = 0, row_groups = 0;
    Place first;
  };
  void count_reason(const RefusalKind& kind, const Reason& more);
  void report_refused(Inspection& out) const;
  void refuse(const BlockPlace& place, std::int64_t row, std::int64_t rows, const std::string& why);
  void add_row(const features::RowBlock& block, std::int64_t row, const BlockPlace& place);
  void add_actions(const features::RowBlock& block, std::int64_t row);
  void cut(const features::RowBlock& block, std::int64_t row);

  const features::Schema& schema_;
  const features::BatchLayout& layout_;
  const std::vector<std::string>& files_;
  std::size_t max_listed_;
  features::Batch batch_;
  features::BatchCutter cutter_;
  bool begun_ = false;

  LengthCounts history_, candidates_;
  DistinctCount users_;
  std::vector<std::int64_t> action_candidates_, action_rows_;  // [64] by bit
  std::uint64_t bits_ = 0;
  bool has_time_ = false;
  std::int64_t first_time_ = 0, last_time_ = 0;
  std::int64_t rows_ = 0, blocks_ = 0, largest_block_ = 0;
  features::CutCounts cuts_;
  std::vector<Place> refusals_;
  std::map<RefusalKind, Reason> by_reason_;
  std::int64_t refused_rows_ = 0, refused_blocks_ = 0;
};

}  // namespace paceline::data
