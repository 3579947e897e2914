// Register-blocked products of the CPU attention and the layouts they read.
//
// Panels: a [rows, dim] matrix as column panels of 16, panel c at c * panel_stride, row r at r * 16
// in it; dim is padded with zeros to a multiple of 16. Transposed panels: the same of the
// transpose, 16 rows of the source side by side, [dim][16]. Tile: [rows, kTileStride], rows are
// queries (a row per query and head of the group), columns are keys.
//
// Each element of a product is one chain of FMAs in order of the contracted index, whatever the
// block around it is: this is what makes a row's bits independent of its neighbours.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace paceline::ops::attention {

inline constexpr int kPanel = 16;       // columns of a panel: two vectors
inline constexpr int kStrip = 6;        // rows of a register block: 6 x 16 fills 12 of 16 registers
inline constexpr int kBlockRows = 48;   // queries of a tile; a multiple of kStrip
inline constexpr int kBlockKeys = 192;  // keys of a tile at most; a multiple of kPanel
// An odd number of cache lines, so that a column of the tile spreads over all cache sets.
inline constexpr int kTileStride = kBlockKeys + kPanel;

constexpr int pad_dim(int dim) { return (dim + kPanel - 1) / kPanel * kPanel; }

// Keys are cut into equal blocks of whole panels, by their number alone.
constexpr int key_blocks(int keys) { return (keys + kBlockKeys - 1) / kBlockKeys; }
constexpr int key_block_size(int keys) {
  const int blocks = std::max(1, key_blocks(keys));
  return pad_dim((keys + blocks - 1) / blocks);
}

// Calls f(std::integral_constant<int, M>, first) for strips of M <= kStrip rows covering [0, rows).
template <typename F>
inline void for_strips(int rows, F&& f) {
  int r = 0;
  for (; r + kStrip <= rows; r += kStrip) f(std::integral_constant<int, kStrip>{}, r);
  switch (rows - r) {
    case 5:
      return f(std::integral_constant<int, 5>{}, r);
    case 4:
      return f(std::integral_constant<int, 4>{}, r);
    case 3:
      return f(std::integral_constant<int, 3>{}, r);
    case 2:
      return f(std::integral_constant<int, 2>{}, r);
    case 1:
      return f(std::integral_constant<int, 1>{}, r);
    default:
      return;
  }
}

// f(0), ..., f(kN - 1) with constant arguments, so that indexed accumulators stay in registers.
template <int kN, typename F>
[[gnu::always_inline]] inline void unroll(F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) { (f(std::integral_constant<int, i>{}), ...); }
  (std::make_integer_sequence<int, kN>{});
}

// Tile block = A B^T: a points at kM rows of panels, b at one transposed panel, out at the tile.
// kV: vectors of columns wanted (1 or 2).
template <int kM, int kV>
inline void product_scores(const float* a, std::ptrdiff_t panel_stride, int panels, const float* b,
                           float* out) {
  __m256 acc[kM][kV];
  unroll<kM * kV>([&](auto i) { acc[i / kV][i % kV] = _mm256_setzero_ps(); });
  for (int c = 0; c < panels; ++c, a += panel_stride) {
#pragma GCC unroll 4
    for (int d = 0; d < kPanel; ++d, b += kPanel) {
      __m256 col[kV];
      unroll<kV>([&](auto v) { col[v] = _mm256_load_ps(b + v * 8); });
      unroll<kM>([&](auto m) {
        const __m256 x = _mm256_broadcast_ss(a + m * kPanel + d);
        unroll<kV>([&](auto v) { acc[m][v] = _mm256_fmadd_ps(x, col[v], acc[m][v]); });
      });
    }
  }
  unroll<kM * kV>([&](auto i) {
    _mm256_store_ps(out + i / kV * kTileStride + i % kV * 8, acc[i / kV][i % kV]);
  });
}

// out[m] += sum over k < n of a(m, k) b[k], for kM rows of one panel; a(m, k) at m * kRowStep +
// k * kColStep. With kScaled, out[m] is first multiplied by alpha[m].
template <int kM, int kRowStep, int kColStep, bool kScaled>
inline void product_accumulate(const float* a, const float* b, int n, const float* alpha,
                               float* out) {
  __m256 acc[kM][2];
  unroll<kM * 2>([&](auto i) {
    acc[i / 2][i % 2] = _mm256_load_ps(out + i * 8);
    if constexpr (kScaled)
      acc[i / 2][i % 2] = _mm256_mul_ps(acc[i / 2][i % 2], _mm256_broadcast_ss(alpha + i / 2));
  });
#pragma GCC unroll 4
  for (int k = 0; k < n; ++k, a += kColStep, b += kPanel) {
    const __m256 lo = _mm256_load_ps(b);
    const __m256 hi = _mm256_load_ps(b + 8);
    unroll<kM>([&](auto m) {
      const __m256 x = _mm256_broadcast_ss(a + m * kRowStep);
      acc[m][0] = _mm256_fmadd_ps(x, lo, acc[m][0]);
      acc[m][1] = _mm256_fmadd_ps(x, hi, acc[m][1]);
    });
  }
  unroll<kM * 2>([&](auto i) { _mm256_store_ps(out + i * 8, acc[i / 2][i % 2]); });
}

// out += or = (scaled out) + tile rows x panels: `strip_keys[s]` columns of strip s count.
template <bool kScaled>
void rows_times_keys(const float* tile, int rows, const int* strip_keys, const float* b,
                     std::ptrdiff_t b_stride, int panels, const float* alpha, float* out,
                     std::ptrdiff_t out_stride) {
  for (int c = 0; c < panels; ++c) {
    const float* bc = b + c * b_stride;
    float* oc = out + c * out_stride;
    for_strips(rows, [&](auto m, int r) {
      product_accumulate<m, kTileStride, 1, kScaled>(
          tile + r * kTileStride, bc, strip_keys[r / kStrip], kScaled ? alpha + r : nullptr,
          oc + r * kPanel);
    });
  }
}

// Tile columns [0, width) of `rows` queries: a [rows] panels, b transposed panels of the keys
// (panel_stride floats apart); the columns a strip does not need are left as they are.
inline void tile_scores(const float* a, std::ptrdiff_t a_stride, int panels, int rows,
                        const int* strip_keys, const float* b, int width, float* tile) {
  for (int j = 0; j < width; j += kPanel, b += panels * kPanel * kPanel) {
    for_strips(rows, [&](auto m, int r) {
      const int left = strip_keys[r / kStrip] - j;
      const float* ar = a + r * kPanel;
      float* out = tile + r * kTileStride + j;
      if (left > 8) {
        product_scores<m, 2>(ar, a_stride, panels, b, out);
      } else if (left > 0) {
        product_scores<m, 1>(ar, a_stride, panels, b, out);
      }
    });
  }
}

// out[key] += sum over rows of tile(row, key) b[row], for keys [0, width); of strip s only rows
// from first_row[s] on count.
inline void keys_times_rows(const float* tile, int rows, const int* first_row, int width,
                            const float* b, std::ptrdiff_t b_stride, int panels, float* out,
                            std::ptrdiff_t out_stride) {
  for_strips(width, [&](auto m, int j) {
    const int r = first_row[j / kStrip];
    for (int c = 0; c < panels; ++c) {
      product_accumulate<m, 1, kTileStride, false>(tile + r * kTileStride + j,
                                                   b + c * b_stride + r * kPanel, rows - r, nullptr,
                                                   out + c * out_stride + j * kPanel);
    }
  });
}

// One row of dim floats into panels, zeros up to the padded dim.
inline void pack_row(const float* src, int dim, float* dst, std::ptrdiff_t panel_stride) {
  int d = 0;
  for (; d + kPanel <= dim; d += kPanel, dst += panel_stride) {
    _mm256_store_ps(dst, _mm256_loadu_ps(src + d));
    _mm256_store_ps(dst + 8, _mm256_loadu_ps(src + d + 8));
  }
  if (d < dim) {
    _mm256_store_ps(dst, _mm256_loadu_ps(src + d));
    _mm256_store_ps(dst + 8, _mm256_setzero_ps());
  }
}

// The first dim columns of a row of panels, times x.
inline void unpack_row(const float* src, std::ptrdiff_t panel_stride, int dim, float x,
                       float* dst) {
  const __m256 xv = _mm256_set1_ps(x);
  for (int d = 0; d < dim; d += 8) {
    const float* s = src + d / kPanel * panel_stride + d % kPanel;
    _mm256_storeu_ps(dst + d, _mm256_mul_ps(_mm256_load_ps(s), xv));
  }
}

inline void transpose_8x8(__m256 (&r)[8]) {
  __m256 t[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  __m256 u[8];
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}

// Eight rows of src, stride floats apart, as half a transposed panel; with kAll false only the
// first `rows` of them exist.
template <bool kAll>
inline void transpose_rows(const float* src, std::int64_t stride, int rows, int dim, float* dst) {
  for (int d = 0; d < dim; d += 8) {
    __m256 r[8];
    for (int i = 0; i < 8; ++i)
      r[i] = kAll || i < rows ? _mm256_loadu_ps(src + i * stride + d) : _mm256_setzero_ps();
    transpose_8x8(r);
    for (int i = 0; i < 8; ++i) _mm256_store_ps(dst + (d + i) * kPanel, r[i]);
  }
  for (int d = dim; d < pad_dim(dim); ++d) _mm256_store_ps(dst + d * kPanel, _mm256_setzero_ps());
}

// Rows [0, n) of src, stride floats apart, as transposed panels; missing rows of the last panel and
// missing dims are zeros.
inline void pack_transposed(const float* src, std::int64_t stride, int n, int dim, float* dst) {
  const std::int64_t size = std::int64_t{pad_dim(dim)} * kPanel;
  for (int j = 0; j < pad_dim(n); j += 8) {
    float* half = dst + j / kPanel * size + j % kPanel;
    if (j + 8 <= n) {
      transpose_rows<true>(src + j * stride, stride, 8, dim, half);
    } else {
      transpose_rows<false>(src + std::min(j, n) * stride, stride, n - j, dim, half);
    }
  }
}

}  // namespace paceline::ops::attention
