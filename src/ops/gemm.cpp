#include "ops/gemm.hpp"

#include <oneapi/dnnl/dnnl.h>

#include <cstring>

#include "core/error.hpp"

// OpenMP's own header is not there for every compiler; the runtime is linked.
extern "C" void omp_set_num_threads(int);

namespace paceline::ops {
namespace {

// The library would otherwise start threads of its own and split sums by their number.
void hold_library_at_one_thread() {
  thread_local const bool held = (omp_set_num_threads(1), true);
  static_cast<void>(held);
}

std::size_t tile_elements(std::int64_t stride, std::int64_t columns) {
  return static_cast<std::size_t>((kTileRows - 1) * stride + columns);
}

void copy_rows(std::int64_t rows, std::int64_t columns, const float* from, std::int64_t from_stride,
               float* to, std::int64_t to_stride) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(to + r * to_stride, from + r * from_stride,
                static_cast<std::size_t>(columns) * sizeof(float));
  }
}

}  // namespace

void gemm(const Gemm& g) {
  hold_library_at_one_thread();
  const dnnl_status_t status = dnnl_sgemm(g.trans_a ? 'T' : 'N', g.trans_b ? 'T' : 'N', g.m, g.n,
                                          g.k, g.alpha, g.a, g.lda, g.b, g.ldb, g.beta, g.c, g.ldc);
  PL_CHECK(status == dnnl_success, "oneDNN accepts the sizes of a matrix product");
}

void tile_gemm(Context& ctx, int worker, const Gemm& g) {
  PL_CHECK(g.m <= kTileRows && !g.trans_a, "a tile holds its rows");
  if (g.m == kTileRows) return gemm(g);
  const std::size_t c_at = align_up(tile_elements(g.lda, g.k) * sizeof(float));
  const std::size_t bytes = c_at + tile_elements(g.ldc, g.n) * sizeof(float);
  std::byte* scratch = ctx.scratch(worker, bytes);
  auto* a = reinterpret_cast<float*>(scratch);
  auto* c = reinterpret_cast<float*>(scratch + c_at);
  copy_rows(g.m, g.k, g.a, g.lda, a, g.lda);
  for (std::int64_t r = g.m; r < kTileRows; ++r) std::fill_n(a + r * g.lda, g.k, 0.0F);
  if (g.beta != 0.0F) {
    copy_rows(g.m, g.n, g.c, g.ldc, c, g.ldc);
    for (std::int64_t r = g.m; r < kTileRows; ++r) std::fill_n(c + r * g.ldc, g.n, 0.0F);
  }
  Gemm whole = g;
  whole.m = kTileRows;
  whole.a = a;
  whole.c = c;
  gemm(whole);
  copy_rows(g.m, g.n, c, g.ldc, g.c, g.ldc);
}

}  // namespace paceline::ops
