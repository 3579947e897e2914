#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "ops/norm_rope/norm_rope.hpp"
#include "ops/split.hpp"

namespace paceline::ops {
namespace {

constexpr std::int64_t kPartialElements = 16384;

void check_shape(int heads, int head_dim, const RopeTable* rope) {
  PL_CHECK(heads >= 1 && head_dim >= 2 && head_dim % 2 == 0 && rope->head_dim == head_dim,
           "the head dimension is even and that of the table");
}

// cos and sin of a row's position.
struct Angles {
  const float* cos;
  const float* sin;
  Angles(const RopeTable& rope, std::int32_t position) {
    PL_CHECK(position >= 0 && position < rope.max_position, "the table covers every position");
    const std::int64_t at = std::int64_t{position} * (rope.head_dim / 2);
    cos = rope.cos.data() + at;
    sin = rope.sin.data() + at;
  }
};

}  // namespace

RopeTable rope_table(std::int64_t max_position, int head_dim, double base) {
  RopeTable table;
  table.max_position = max_position;
  table.head_dim = head_dim;
  const int half = head_dim / 2;
  table.cos.reserve(static_cast<std::size_t>(max_position * half));
  table.sin.reserve(static_cast<std::size_t>(max_position * half));
  for (std::int64_t position = 0; position < max_position; ++position) {
    for (int i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * std::pow(base, -2.0 * i / head_dim);
      table.cos.push_back(static_cast<float>(std::cos(angle)));
      table.sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

void norm_rope_cpu(Context& ctx, const NormRopeArgs& args) {
  check_shape(args.heads, args.head_dim, args.rope);
  const std::int64_t width = std::int64_t{args.heads} * args.head_dim;
  const std::int64_t half = args.head_dim / 2;
  for_chunks(ctx, args.rows, rows_per_chunk(width), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* x_row = args.x + row * args.x_stride;
      const Angles angles(*args.rope, args.positions[row]);
      const float mean = simd::sum_squares(x_row, width) / static_cast<float>(width);
      const float inv = 1.0F / std::sqrt(mean + args.eps);
      args.inv_rms[row] = inv;
      const __m256 r = _mm256_set1_ps(inv);
      for (std::int64_t head = 0; head < width; head += args.head_dim) {
        const float* x = x_row + head;
        const float* scale = args.scale + head;
        float* y = args.y + row * width + head;
        simd::for_vectors(half, [&](std::int64_t i, auto lanes) {
          const __m256 c = lanes.load(angles.cos + i);
          const __m256 s = lanes.load(angles.sin + i);
          const __m256 a =
              _mm256_mul_ps(_mm256_mul_ps(lanes.load(x + i), r), lanes.load(scale + i));
          const __m256 b = _mm256_mul_ps(_mm256_mul_ps(lanes.load(x + half + i), r),
                                         lanes.load(scale + half + i));
          lanes.store(y + i, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
          lanes.store(y + half + i, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
        });
      }
    }
  });
}

// dy is turned back by the angle to n's gradient, then as in the backward of RMSNorm.
void norm_rope_grad_cpu(Context& ctx, const NormRopeGradArgs& args) {
  check_shape(args.heads, args.head_dim, args.rope);
  const std::int64_t width = std::int64_t{args.heads} * args.head_dim;
  const std::int64_t half = args.head_dim / 2;
  const std::int64_t step = rows_per_chunk(width, kPartialElements);
  const std::int64_t chunks = ceil_div(args.rows, step);
  auto* partial = reinterpret_cast<float*>(
      ctx.shared_scratch(static_cast<std::size_t>(chunks * width) * sizeof(float)));
  for_chunks(ctx, args.rows, step, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* dscale_row = partial + begin / step * width;
    std::fill_n(dscale_row, width, 0.0F);
    // Gradient of x * inv_rms.
    auto* g_row = reinterpret_cast<float*>(
        ctx.scratch(worker, static_cast<std::size_t>(width) * sizeof(float)));
    for (std::int64_t row = begin; row < end; ++row) {
      const float* x_row = args.x + row * args.x_stride;
      const Angles angles(*args.rope, args.positions[row]);
      const float inv = args.inv_rms[row];
      const __m256 r = _mm256_set1_ps(inv);
      __m256 dot = _mm256_setzero_ps();
      for (std::int64_t head = 0; head < width; head += args.head_dim) {
        const float* dy = args.dy + row * width + head;
        simd::for_vectors(half, [&](std::int64_t i, auto lanes) {
          const __m256 c = lanes.load(angles.cos + i);
          const __m256 s = lanes.load(angles.sin + i);
          const __m256 first = lanes.load(dy + i);
          const __m256 second = lanes.load(dy + half + i);
          const auto add = [&](std::int64_t at, __m256 dn) {
            const __m256 x = lanes.load(x_row + at);
            const __m256 g = _mm256_mul_ps(dn, lanes.load(args.scale + at));
            lanes.store(dscale_row + at,
                        _mm256_fmadd_ps(dn, _mm256_mul_ps(x, r), lanes.load(dscale_row + at)));
            lanes.store(g_row + at, g);
            dot = _mm256_fmadd_ps(g, x, dot);
          };
          add(head + i, _mm256_fmadd_ps(first, c, _mm256_mul_ps(second, s)));
          add(head + half + i, _mm256_fmsub_ps(second, c, _mm256_mul_ps(first, s)));
        });
      }
      const float mean = simd::sum_lanes(dot) / static_cast<float>(width);
      const __m256 back = _mm256_set1_ps(inv * inv * inv * mean);
      float* dx = args.dx + row * args.dx_stride;
      simd::for_vectors(width, [&](std::int64_t i, auto lanes) {
        const __m256 direct = _mm256_mul_ps(lanes.load(g_row + i), r);
        lanes.store(dx + i, _mm256_fnmadd_ps(lanes.load(x_row + i), back, direct));
      });
    }
  });
  add_partials(ctx, chunks, width, partial, args.dscale, true);
}

}  // namespace paceline::ops
