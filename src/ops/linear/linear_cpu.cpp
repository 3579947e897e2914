#include "core/error.hpp"
#include "ops/gemm.hpp"
#include "ops/linear/linear.hpp"

namespace paceline::ops {
namespace {

// All rows of y = x op(w), tile by tile.
void row_tiles(Context& ctx, std::int64_t rows, const Gemm& all) {
  PL_CHECK(all.n >= 1 && all.k >= 1 && all.lda >= all.k && all.ldc >= all.n,
           "a linear layer has features and rows do not overlap");
  for_chunks(ctx, rows, kTileRows, [&](std::int64_t begin, std::int64_t end, int worker) {
    Gemm tile = all;
    tile.m = end - begin;
    tile.a += begin * all.lda;
    tile.c += begin * all.ldc;
    tile_gemm(ctx, worker, tile);
  });
}

}  // namespace

void linear_cpu(Context& ctx, const LinearArgs& args) {
  Gemm g;
  g.trans_b = true;
  g.n = args.out;
  g.k = args.in;
  g.a = args.x;
  g.lda = args.x_stride;
  g.b = args.w;
  g.ldb = args.in;
  g.c = args.y;
  g.ldc = args.y_stride;
  g.beta = args.accumulate ? 1.0F : 0.0F;
  row_tiles(ctx, args.rows, g);
}

void linear_data_grad_cpu(Context& ctx, const LinearDataGradArgs& args) {
  Gemm g;
  g.n = args.in;
  g.k = args.out;
  g.a = args.dy;
  g.lda = args.dy_stride;
  g.b = args.w;
  g.ldb = args.in;
  g.c = args.dx;
  g.ldc = args.dx_stride;
  g.beta = args.accumulate ? 1.0F : 0.0F;
  row_tiles(ctx, args.rows, g);
}

void linear_weight_grad_cpu(Context& ctx, const LinearWeightGradArgs& args) {
  PL_CHECK(args.in >= 1 && args.out >= 1 && args.x_stride >= args.in && args.dy_stride >= args.out,
           "a linear layer has features and rows do not overlap");
  const std::int64_t size = std::int64_t{args.in} * args.out;
  if (args.rows == 0) {
    if (!args.accumulate) std::fill_n(args.dw, size, 0.0F);
    return;
  }
  const auto plan = WeightGradPlan::make(args.rows, args.out);
  const bool direct = plan.segments == 1;
  float* partial = direct ? nullptr
                          : reinterpret_cast<float*>(ctx.shared_scratch(
                                static_cast<std::size_t>(plan.segments * size) * sizeof(float)));
  ctx.pool().run(plan.segments * plan.out_tiles, [&](std::int64_t task, int) {
    const std::int64_t segment = task / plan.out_tiles;
    const std::int64_t o = task % plan.out_tiles * plan.tile_out;
    const std::int64_t end = std::min(args.rows, (segment + 1) * plan.segment_rows);
    Gemm g;
    g.trans_a = true;
    g.m = std::min(plan.tile_out, args.out - o);
    g.n = args.in;
    g.lda = args.dy_stride;
    g.ldb = args.x_stride;
    g.c = (direct ? args.dw : partial + segment * size) + o * args.in;
    g.ldc = args.in;
    g.beta = direct && args.accumulate ? 1.0F : 0.0F;
    for (std::int64_t r = segment * plan.segment_rows; r < end; r += WeightGradPlan::kChunkRows) {
      g.k = std::min(WeightGradPlan::kChunkRows, end - r);
      g.a = args.dy + r * args.dy_stride + o;
      g.b = args.x + r * args.x_stride;
      gemm(g);
      g.beta = 1.0F;
    }
  });
  if (!direct) add_partials(ctx, plan.segments, size, partial, args.dw, args.accumulate);
}

}  // namespace paceline::ops
