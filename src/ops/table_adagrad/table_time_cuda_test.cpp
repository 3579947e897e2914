// Times of the ops that the tables and the dense parameters pass through, at the size of the nano
// ranker, on demand: --gtest_also_run_disabled_tests --gtest_filter=*Times*. Medians of 20
// launches; GB/s of the bytes that each op must read and write, every lookup's row counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "device/testing/gpu_test.hpp"
#include "ops/adamw/adamw_cuda.hpp"
#include "ops/global_norm/global_norm_cuda.hpp"
#include "ops/table_adagrad/table_adagrad_cuda.hpp"
#include "ops/testing/numeric.hpp"
#include "ops/token_build/token_build_cuda.hpp"

namespace paceline::ops {
namespace {

using device::BFloat16;
using device::testing::DeviceArray;

constexpr std::int32_t kHistory = 65472, kCandidates = 8192;
constexpr std::int32_t kHashes = 4, kWidth = 128, kRows = 240128;
constexpr std::int32_t kColumns = kHashes * kWidth;
constexpr std::int64_t kEntries = std::int64_t{kHistory} + kCandidates;
constexpr std::int64_t kPlaces = kEntries * kHashes;
constexpr std::int64_t kDense = 8'000'000;

class GpuTableTimes : public device::testing::GpuTest {
 protected:
  template <typename F>
  void time(const char* name, double bytes, F&& launch) const {
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
    const auto median = static_cast<double>(ms[10]);
    std::printf("%-28s %8.1f us %7.0f GB/s\n", name, median * 1e3, bytes / median * 1e-6);
  }

  // Rows by the cube of a uniform number: some hundred are hot. hot: half of all is one row.
  static std::vector<std::int32_t> ids_of(std::int64_t entries, bool hot, std::uint64_t id) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < entries * kHashes; ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      const double u = static_cast<double>(testing::random_below(1U << 30, at, id)) / (1U << 30);
      const bool same = hot && testing::random_below(2, at, id + 1) == 0;
      ids.push_back(same ? kRows / 2 : static_cast<std::int32_t>(u * u * u * kRows));
    }
    return ids;
  }

  void time_tables(bool hot) const;
  void time_dense() const;

  device::Stream stream{"test"};
};

void GpuTableTimes::time_tables(bool hot) const {
  const DeviceArray<std::int32_t> history(ids_of(kHistory, hot, 1));
  const DeviceArray<std::int32_t> candidates(ids_of(kCandidates, hot, 5));
  const DeviceArray<std::int32_t> counts(std::vector<std::int32_t>{kHistory, kCandidates});
  const DeviceArray<float> table(std::size_t{kRows} * kWidth), acc(std::vector<float>(kRows, 1.0F));
  const DeviceArray<BFloat16> x(static_cast<std::size_t>(kEntries * kColumns));
  const auto candidate_x = x.data() + std::int64_t{kHistory} * kColumns;
  const DeviceArray<TokenInputCuda> inputs(
      std::vector<TokenInputCuda>{{TokenColumn::kTableRows, kHashes, 0, history.data()},
                                  {TokenColumn::kTableRows, kHashes, 0, candidates.data()}});
  const double row = kWidth * sizeof(float), half_row = kWidth * sizeof(BFloat16);
  time(hot ? "gather, half one row" : "gather", kPlaces * (row + half_row), [&] {
    token_gather_cuda<BFloat16>(stream, {kHistory, counts.data(), inputs.data(), 1, kColumns,
                                         table.data(), kWidth, x.data()});
    token_gather_cuda<BFloat16>(stream, {kCandidates, counts.data() + 1, inputs.data() + 1, 1,
                                         kColumns, table.data(), kWidth, candidate_x});
  });

  std::vector<TableLookupCuda> lookups;
  for (const auto* ids : {history.data(), candidates.data()}) {
    for (int h = 0; h < kHashes; ++h) lookups.push_back({ids + h, kHashes, h * kWidth});
  }
  const DeviceArray<TableLookupCuda> d_lookups(lookups);
  const DeviceArray<TableKindCuda> kinds(
      std::vector<TableKindCuda>{{counts.data(), kHistory, kHashes, 0, 0, x.data(), kColumns},
                                 {counts.data() + 1, kCandidates, kHashes, kHistory * kHashes,
                                  kHashes, candidate_x, kColumns}});
  const TableSourcesCuda sources{kinds.data(), 2, d_lookups.data()};
  TableIndexCuda index;
  TableSumsCuda sums;
  const auto place = [&](device::Arena& arena) {
    index = place_table_index(arena, kPlaces, kRows);
    sums = place_table_sums(arena, index, kWidth);
  };
  device::Arena counting;
  place(counting);
  const auto memory = device::Memory::create(counting.used(), "a test's table index");
  ASSERT_TRUE(memory.ok());
  device::Arena arena(*memory);
  place(arena);
  StepDecision decision;
  decision.applied = 1;
  const DeviceArray<StepDecision> d_decision(std::vector<StepDecision>{decision});

  time("index", kPlaces * 8.0, [&] { table_index_cuda(stream, sources, index); });
  std::int32_t unique = 0;
  device::copy_to_host(stream, &unique, index.unique, sizeof(unique));
  stream.synchronize();
  std::printf("%d rows of %lld lookups\n", unique, static_cast<long long>(kPlaces));
  time("reduce", kPlaces * half_row + unique * row, [&] {
    table_reduce_cuda<BFloat16>(stream, {sources, index, sums, 1.0F});
  });
  time("apply", unique * (3.0 * row + 8.0), [&] {
    table_apply_cuda<float>(stream,
                            {index, sums, d_decision.data(), 1e-10, table.data(), acc.data()});
  });
}

void GpuTableTimes::time_dense() const {
  constexpr auto kSize = static_cast<std::size_t>(kDense);
  const DeviceArray<float> p(kSize), g(kSize), m(kSize), v(kSize);
  const DeviceArray<BFloat16> shadow(kSize);
  const DeviceArray<double> partials(kGlobalNormPartials), norm(1);
  StepDecision decision;
  decision.applied = 1;
  const DeviceArray<StepDecision> d_decision(std::vector<StepDecision>{decision});
  time("adamw", kDense * 30.0, [&] {
    adamw_cuda<BFloat16>(stream, {kDense, kDense / 2, p.data(), g.data(), m.data(), v.data(),
                                  shadow.data(), 0.9, 0.98, 1e-8, 0.01, d_decision.data()});
  });
  time("global norm", kDense * 4.0,
       [&] { global_norm_cuda(stream, kDense, g.data(), partials.data(), norm.data()); });
}

TEST_F(GpuTableTimes, DISABLED_Print) {
  time_tables(false);
  time_tables(true);
  time_dense();
}

}  // namespace
}  // namespace paceline::ops
