// Matrix products of the CPU ops: oneDNN on the calling thread only, on tiles fixed by shapes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/context.hpp"
#include "ops/split.hpp"

namespace paceline::ops {

// Rows of a tile. oneDNN gives the rows left over by its own register tile other bits than the
// rest: on AVX2 (6 rows) 2 rows of 128 and 4 of 256 differed from the others, none of 96 or 192.
// 96 is a multiple of its tiles of 6, 8, 16, 24 and 48 rows, and was as fast as any
// of 32 to 512 rows.
inline constexpr std::int64_t kTileRows = 96;

// c [m, n] = alpha * a b + beta * c, all row-major; trans_a: a is stored [k, m], trans_b: b is
// stored [n, k]. Runs on the calling thread and does not fail for valid sizes.
struct Gemm {
  bool trans_a = false, trans_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  std::int64_t lda = 0;
  const float* b = nullptr;
  std::int64_t ldb = 0;
  float* c = nullptr;
  std::int64_t ldc = 0;
  float alpha = 1.0F;
  float beta = 0.0F;
};
void gemm(const Gemm& g);

// A Gemm of at most kTileRows rows whose rows get the same bits whatever m is: fewer rows are
// copied to scratch of `worker`, padded with zeros to a full tile, with the strides of the full
// one.
void tile_gemm(Context& ctx, int worker, const Gemm& g);

// How dw [out, in] = dy^T x over `rows` rows is cut: tiles of `tile_out` output features, and row
// segments whose partial sums are added in order. A function of the shape alone.
struct WeightGradPlan {
  static constexpr std::int64_t kTasks = 16;       // keeps several threads busy
  static constexpr std::int64_t kTileOut = 128;    // output features of a tile
  static constexpr std::int64_t kChunkRows = 256;  // rows of one library call
  static constexpr std::int64_t kAlignRows = 64;

  std::int64_t tile_out, out_tiles, segment_rows, segments;

  static constexpr WeightGradPlan make(std::int64_t rows, std::int64_t out) {
    WeightGradPlan p{};
    p.tile_out = std::min(out, kTileOut);
    p.out_tiles = ceil_div(out, p.tile_out);
    const std::int64_t wanted = std::max<std::int64_t>(1, kTasks / p.out_tiles);
    p.segment_rows =
        ceil_div(std::max(ceil_div(rows, wanted), std::min(rows, 2 * kAlignRows)), kAlignRows) *
        kAlignRows;
    p.segments = ceil_div(rows, p.segment_rows);
    return p;
  }
};

}  // namespace paceline::ops
