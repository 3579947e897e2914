// Times of the GPU attention, on demand: --gtest_also_run_disabled_tests --gtest_filter=*Times*.
// Medians of 20 launches, inputs resident; TFLOP/s of useful work (pairs that are read).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "device/testing/gpu_test.hpp"
#include "ops/ranker_attention/ranker_attention_cuda.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using device::BFloat16;

class GpuRankerAttentionTimes : public device::testing::GpuTest {
 protected:
  template <typename F>
  static float median_ms(const device::Stream& stream, F&& launch) {
    std::vector<float> ms;
    for (int i = 0; i < 25; ++i) {
      device::Event begin(true), end(true);
      begin.record(stream);
      launch();
      end.record(stream);
      end.wait();
      if (i >= 5) ms.push_back(device::elapsed_ms(begin, end));
    }
    std::nth_element(ms.begin(), ms.begin() + 10, ms.end());
    return ms[10];
  }

  static void time(const char* name, int examples, int keys, int candidates, int query_heads,
                   int key_heads, int head_dim) {
    std::vector<std::int32_t> cu_rows, cu_candidates;
    for (int b = 0; b <= examples; ++b) {
      cu_rows.push_back(b * (keys + candidates));
      cu_candidates.push_back(b * candidates);
    }
    const std::int64_t rows = cu_rows.back();
    const std::int64_t qw = std::int64_t{query_heads} * head_dim;
    const std::int64_t kw = std::int64_t{key_heads} * head_dim;
    const std::int64_t row = qw + 2 * kw;
    const auto some = testing::normal_values(1 << 16, 0);
    std::vector<BFloat16> values(static_cast<std::size_t>(rows * row));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = device::to_bfloat16(some[(i ^ i / 65521) % some.size()]);
    using device::testing::DeviceArray;
    const DeviceArray<std::int32_t> d_rows(cu_rows), d_candidates(cu_candidates);
    const DeviceArray<BFloat16> in(values), d_o(values), out(values.size()), o(values.size());
    const DeviceArray<float> lse(static_cast<std::size_t>(rows * query_heads));
    const DeviceArray<float> delta(static_cast<std::size_t>(rows * query_heads));
    AttentionCudaShape s;
    s.max_examples = examples;
    s.cu_rows = d_rows.data();
    s.cu_candidates = d_candidates.data();
    s.max_rows = keys + candidates;
    s.max_candidates = candidates;
    s.row_capacity = rows;
    s.candidate_capacity = cu_candidates.back();
    s.query_heads = query_heads;
    s.key_heads = key_heads;
    s.head_dim = head_dim;
    s.scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
    const AttentionCudaArgs<BFloat16> a{
        s, in.data(), row, in.data() + qw, row, in.data() + qw + kw, row, o.data(), qw, lse.data()};
    const AttentionGradCudaArgs<BFloat16> g{
        a,   d_o.data(),      qw,  delta.data(),         out.data(),
        row, out.data() + qw, row, out.data() + qw + kw, row};
    const device::Stream stream("test");
    const float forward = median_ms(stream, [&] { ranker_attention_cuda(stream, a); });
    const float backward = median_ms(stream, [&] { ranker_attention_grad_cuda(stream, g); });
    const double pairs = examples * (1.0 * keys * (keys + candidates) + candidates);
    const double flop = 4.0 * head_dim * query_heads * pairs;
    std::printf("%-24s forward %8.3f ms %6.1f TFLOP/s, backward %8.3f ms %6.1f TFLOP/s\n", name,
                static_cast<double>(forward), flop / forward * 1e-9, static_cast<double>(backward),
                2.5 * flop / backward * 1e-9);
  }
};
TEST_F(GpuRankerAttentionTimes, DISABLED_Print) {
  time("nano 64x1024+128 4/2 128", 64, 1024, 128, 4, 2, 128);
  time("32x1024+64 20/4 128", 32, 1024, 64, 20, 4, 128);
  time("32x1024+128 16/16 128", 32, 1024, 128, 16, 16, 128);
  time("32x1024+128 16/16 64", 32, 1024, 128, 16, 16, 64);
}

}  // namespace
}  // namespace paceline::ops
