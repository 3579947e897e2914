#include <algorithm>
#include <cstring>

#include "core/error.hpp"
#include "ops/gemm.hpp"
#include "ops/token_build/token_build.hpp"

namespace paceline::ops {
namespace {

constexpr std::int64_t kBackRows = 2 * kTileRows;  // entries of a library call of the backward
constexpr std::int64_t kSegments = 16;             // partial sums of the weight gradient, at most

std::int64_t columns_of(const TokenInput& input, std::int64_t table_width) {
  return input.column == TokenColumn::kTableRows ? input.width * table_width : input.width;
}

void check_shape(const TokenBuildArgs& args) {
  std::int64_t columns = 0;
  for (const TokenInput& input : args.inputs) columns += columns_of(input, args.table_width);
  PL_CHECK(columns == args.width && args.width >= 1 && args.model >= 1,
           "a token's columns are those of its features");
}

void copy_floats(const float* from, std::int64_t n, float* to) {
  simd::for_vectors(n,
                    [&](std::int64_t i, auto lanes) { lanes.store(to + i, lanes.load(from + i)); });
}

// One feature of entry e to its columns.
void gather_input(const TokenBuildArgs& args, const TokenInput& input, std::int64_t e, float* to) {
  const std::int64_t table_width = args.table_width;
  switch (input.column) {
    case TokenColumn::kTableRows:
      for (int hash = 0; hash < input.width; ++hash, to += table_width) {
        const std::int64_t row = input.ints[e * input.width + hash];
        if (row < 0) {
          std::fill_n(to, table_width, 0.0F);
        } else {
          copy_floats(args.table + row * table_width, table_width, to);
        }
      }
      return;
    case TokenColumn::kOneHot: {
      std::fill_n(to, input.width, 0.0F);
      const std::int32_t value = input.ints[e];
      if (value >= 0 && value < input.width) to[value] = 1.0F;
      return;
    }
    case TokenColumn::kNumber:
      *to = input.floats[e];
      return;
    case TokenColumn::kMask:
      for (int bit = 0; bit < input.width; ++bit) {
        to[bit] = static_cast<float>(input.masks[e] >> bit & 1U);
      }
      return;
  }
}

// x [end - begin, width]: the features of entries [begin, end).
void gather_features(const TokenBuildArgs& args, std::int64_t begin, std::int64_t end, float* x) {
  std::int64_t column = 0;
  for (const TokenInput& input : args.inputs) {
    for (std::int64_t e = begin; e < end; ++e) {
      gather_input(args, input, e, x + (e - begin) * args.width + column);
    }
    column += columns_of(input, args.table_width);
  }
}

// to[i] = multiplier * from[i].
void scale_row(float multiplier, const float* from, std::int64_t n, float* to) {
  const __m256 m = _mm256_set1_ps(multiplier);
  simd::for_vectors(n, [&](std::int64_t i, auto lanes) {
    lanes.store(to + i, _mm256_mul_ps(m, lanes.load(from + i)));
  });
}

// Two matrices of `rows` rows in a worker's scratch.
struct Tiles {
  float* x;  // [rows, width]
  float* y;  // [rows, model]
  Tiles(Context& ctx, int worker, std::int64_t rows, std::int64_t width, std::int64_t model) {
    const std::size_t y_at = align_up(static_cast<std::size_t>(rows * width) * sizeof(float));
    std::byte* base =
        ctx.scratch(worker, y_at + static_cast<std::size_t>(rows * model) * sizeof(float));
    x = reinterpret_cast<float*>(base);
    y = reinterpret_cast<float*>(base + y_at);
  }
};

// dy [n, model] of entries [begin, begin + n), times the multiplier.
void gather_gradient(const TokenBuildGradArgs& args, std::int64_t begin, std::int64_t n,
                     float* dy) {
  const std::int64_t model = args.forward.model;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t token = args.forward.token_index[begin + i];
    scale_row(args.forward.multiplier, args.dh + token * model, model, dy + i * model);
  }
}

// d_rows of entries [begin, begin + n): dy times each run of neighbouring table columns of w, then
// zeros for what was missing.
void row_gradients(const TokenBuildGradArgs& args, std::int64_t begin, std::int64_t n,
                   const float* dy) {
  const TokenBuildArgs& f = args.forward;
  const std::int64_t entry = std::int64_t{lookups_per_entry(f.inputs)} * f.table_width;
  if (entry == 0) return;
  float* out = args.d_rows + begin * entry;
  std::int64_t column = 0;  // in w
  std::int64_t at = 0;      // in an entry of d_rows
  for (std::size_t i = 0; i < f.inputs.size();) {
    if (f.inputs[i].column != TokenColumn::kTableRows) {
      column += f.inputs[i++].width;
      continue;
    }
    Gemm g;
    for (; i < f.inputs.size() && f.inputs[i].column == TokenColumn::kTableRows; ++i) {
      g.n += columns_of(f.inputs[i], f.table_width);
    }
    g.m = n;
    g.k = f.model;
    g.a = dy;
    g.lda = f.model;
    g.b = f.w + column;
    g.ldb = f.width;
    g.c = out + at;
    g.ldc = entry;
    if (g.n > 0) gemm(g);
    column += g.n;
    at += g.n;
  }
  at = 0;
  for (const TokenInput& input : f.inputs) {
    if (input.column != TokenColumn::kTableRows) continue;
    for (std::int64_t i = 0; i < n; ++i) {
      for (int hash = 0; hash < input.width; ++hash) {
        if (input.ints[(begin + i) * input.width + hash] >= 0) continue;
        std::fill_n(out + i * entry + at + hash * f.table_width, f.table_width, 0.0F);
      }
    }
    at += columns_of(input, f.table_width);
  }
}

}  // namespace

int lookups_per_entry(std::span<const TokenInput> inputs) {
  int n = 0;
  for (const TokenInput& input : inputs) {
    if (input.column == TokenColumn::kTableRows) n += input.width;
  }
  return n;
}

void token_build_cpu(Context& ctx, const TokenBuildArgs& args) {
  check_shape(args);
  for_chunks(ctx, args.entries, kTileRows, [&](std::int64_t begin, std::int64_t end, int worker) {
    const Tiles tile(ctx, worker, kTileRows, args.width, args.model);
    gather_features(args, begin, end, tile.x);
    std::fill(tile.x + (end - begin) * args.width, tile.x + kTileRows * args.width, 0.0F);
    Gemm g;
    g.trans_b = true;
    g.m = kTileRows;  // always whole, so that an entry's place never changes its bits
    g.n = args.model;
    g.k = args.width;
    g.a = tile.x;
    g.lda = args.width;
    g.b = args.w;
    g.ldb = args.width;
    g.c = tile.y;
    g.ldc = args.model;
    gemm(g);
    for (std::int64_t e = begin; e < end; ++e) {
      scale_row(args.multiplier, tile.y + (e - begin) * args.model, args.model,
                args.h + std::int64_t{args.token_index[e]} * args.model);
    }
  });
}

void token_build_grad_cpu(Context& ctx, const TokenBuildGradArgs& args) {
  const TokenBuildArgs& f = args.forward;
  check_shape(f);
  if (f.entries == 0) return;
  const std::int64_t size = std::int64_t{f.model} * f.width;
  const std::int64_t segment_rows = ceil_div(f.entries, kBackRows * kSegments) * kBackRows;
  const std::int64_t segments = ceil_div(f.entries, segment_rows);
  auto* partial = reinterpret_cast<float*>(
      ctx.shared_scratch(static_cast<std::size_t>(segments * size) * sizeof(float)));
  for_chunks(ctx, f.entries, segment_rows, [&](std::int64_t begin, std::int64_t end, int worker) {
    const Tiles tile(ctx, worker, kBackRows, f.width, f.model);
    Gemm g;
    g.trans_a = true;
    g.m = f.model;
    g.n = f.width;
    g.a = tile.y;
    g.lda = f.model;
    g.b = tile.x;
    g.ldb = f.width;
    g.c = partial + begin / segment_rows * size;
    g.ldc = f.width;
    for (std::int64_t e = begin; e < end; e += kBackRows) {
      g.k = std::min(kBackRows, end - e);
      gather_gradient(args, e, g.k, tile.y);
      gather_features(f, e, e + g.k, tile.x);
      gemm(g);
      g.beta = 1.0F;
      row_gradients(args, e, g.k, tile.y);
    }
  });
  add_partials(ctx, segments, size, partial, args.dw, true);
}

}  // namespace paceline::ops
