// The table's update on the GPU against the fp64 reference of the CPU op, and its laws.
#include "ops/table_adagrad/table_adagrad_cuda.hpp"

#include <limits>
#include <memory>
#include <ostream>

#include "device/testing/gpu_test.hpp"
#include "ops/table_adagrad/table_adagrad_ref.hpp"
#include "ops/testing/gpu_values.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT
using device::BFloat16;
using device::testing::DeviceArray;

struct Shape {
  int entries;  // of the larger kind
  int rows, width;
  int hot_tenths = 0;  // of the lookups that go to one row
};
void PrintTo(const Shape& s, std::ostream* os) {
  *os << s.entries << "x" << s.rows << "x" << s.width << " hot " << s.hot_tenths;
}

// One feature's ids and where its gradients lie in dX.
struct Feature {
  int hashes;
  int first_column;
};
struct Kind {
  std::vector<Feature> features;
  int entries, capacity, k_padded;
  std::vector<std::vector<std::int32_t>> ids;  // by feature [capacity][hashes]
  std::vector<float> dx;                       // [capacity, k_padded]
};

constexpr double kTableLr = 0.2, kEps = 1e-10;
constexpr float kScale = 0.5F;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Two kinds with lookups, the first with two features; slack past the entries holds NaN.
template <typename T>
class Problem {
 public:
  explicit Problem(const Shape& s, int slack = 9) : shape(s) {
    const int step = (s.width + 7) / 8 * 8;
    add({{2, 8}, {1, 16 + 2 * step}}, s.entries, slack, 24 + 3 * step);
    add({{1, 0}}, s.entries / 3, 2 * slack, step);
    for (int i = 0; i < s.rows * s.width; ++i) {
      table.push_back(static_cast<float>(i % 1013) / 506.0F - 1.0F);
    }
    acc.assign(static_cast<std::size_t>(s.rows), 0.25F);
  }

  struct Output {
    std::vector<std::int32_t> rows, starts, places;
    std::vector<float> g;
    std::int32_t not_finite = 0;
    std::vector<float> table, acc;
  };
  Output run(bool applied = true) const;

  // Of the lookups in the order of places, without those past the entries.
  std::vector<std::int32_t> lookups() const {
    std::vector<std::int32_t> out;
    each([&](const Kind&, std::int32_t row, std::size_t, std::int32_t) { out.push_back(row); });
    return out;
  }
  std::vector<std::int32_t> places() const {
    std::vector<std::int32_t> out;
    each([&](const Kind&, std::int32_t, std::size_t, std::int32_t at) { out.push_back(at); });
    return out;
  }
  std::vector<float> d_rows() const {
    std::vector<float> out;
    each([&](const Kind& kind, std::int32_t, std::size_t at, std::int32_t) {
      for (std::size_t c = 0; c < static_cast<std::size_t>(shape.width); ++c) {
        out.push_back(kind.dx[at + c]);
      }
    });
    return out;
  }
  // f(kind, row, first element in dx, place).
  template <typename F>
  void each(F&& f) const {
    std::int32_t place = 0;
    for (const Kind& kind : kinds) {
      for (int e = 0; e < kind.capacity; ++e) {
        for (std::size_t i = 0; i < kind.features.size(); ++i) {
          for (int h = 0; h < kind.features[i].hashes; ++h, ++place) {
            if (e >= kind.entries) continue;
            const int column = kind.features[i].first_column + h * shape.width;
            f(kind, kind.ids[i][static_cast<std::size_t>(e * kind.features[i].hashes + h)],
              static_cast<std::size_t>(e * kind.k_padded + column), place);
          }
        }
      }
    }
  }

  Shape shape;
  std::vector<Kind> kinds;
  std::vector<float> table, acc;

 private:
  // About a tenth is missing, small rows are looked up more often.
  std::int32_t row_of(std::uint64_t at, std::uint64_t id) const {
    const auto rows = static_cast<std::uint64_t>(shape.rows);
    if (random_below(10, at, id + 3) == 0) return -1;
    if (random_below(10, at, id + 4) < static_cast<std::uint64_t>(shape.hot_tenths)) {
      return shape.rows / 2;
    }
    return static_cast<std::int32_t>(random_below(1 + random_below(rows, at, id + 1), at, id + 2));
  }
  void add(std::vector<Feature> features, int entries, int slack, int k_padded) {
    Kind kind{std::move(features), entries, entries + slack, k_padded, {}, {}};
    const auto id = static_cast<std::uint64_t>(100 * kinds.size());
    for (std::size_t f = 0; f < kind.features.size(); ++f) {
      std::vector<std::int32_t> ids;
      for (int i = 0; i < kind.capacity * kind.features[f].hashes; ++i) {
        ids.push_back(row_of(static_cast<std::uint64_t>(i), id + 10 * f));
      }
      kind.ids.push_back(ids);
    }
    kind.dx = normal_values(std::int64_t{entries} * k_padded, id + 50);
    for (float& x : kind.dx) x = as_float(as<T>(x));
    kind.dx.resize(static_cast<std::size_t>(kind.capacity * k_padded), kNan);
    kinds.push_back(std::move(kind));
  }
};

// What the ops get of a problem.
template <typename T>
struct OnDevice {
  explicit OnDevice(const Problem<T>& p) {
    std::vector<TableKindCuda> kind_list;
    std::vector<TableLookupCuda> lookup_list;
    for (const Kind& kind : p.kinds) {
      counts.emplace_back(std::vector<std::int32_t>{kind.entries});
      dx.emplace_back(all_as<T>(kind.dx));
      TableKindCuda k;
      k.count = counts.back().data();
      k.capacity = kind.capacity;
      k.first_place = static_cast<std::int32_t>(capacity);
      k.first_lookup = static_cast<std::int32_t>(lookup_list.size());
      k.dx = dx.back().data();
      k.k_padded = kind.k_padded;
      for (std::size_t f = 0; f < kind.features.size(); ++f) {
        ids.emplace_back(kind.ids[f]);
        const auto [hashes, first] = kind.features[f];
        for (int h = 0; h < hashes; ++h, ++k.per_entry) {
          lookup_list.push_back({ids.back().data() + h, hashes, first + h * p.shape.width});
        }
      }
      capacity += std::int64_t{k.capacity} * k.per_entry;
      kind_list.push_back(k);
    }
    kinds = std::make_unique<DeviceArray<TableKindCuda>>(kind_list);
    lookups = std::make_unique<DeviceArray<TableLookupCuda>>(lookup_list);
    sources = {kinds->data(), static_cast<int>(kind_list.size()), lookups->data()};
    const auto place = [&](device::Arena& arena) {
      index = place_table_index(arena, capacity, p.shape.rows);
      sums = place_table_sums(arena, index, p.shape.width);
    };
    device::Arena counting;
    place(counting);
    auto created = device::Memory::create(counting.used(), "a test's table index");
    PL_CHECK(created.ok(), "there is memory for a test");
    memory = std::move(*created);
    const std::vector<std::byte> old(memory.size_bytes(), std::byte{0xA5});
    const device::Stream stream("test");
    device::copy_to_device(stream, memory.data(), old.data(), old.size());
    stream.synchronize();
    device::Arena arena(memory);
    place(arena);
  }

  std::vector<DeviceArray<std::int32_t>> counts, ids;
  std::vector<DeviceArray<T>> dx;
  std::unique_ptr<DeviceArray<TableKindCuda>> kinds;
  std::unique_ptr<DeviceArray<TableLookupCuda>> lookups;
  device::Memory memory;
  std::int64_t capacity = 0;
  TableSourcesCuda sources;
  TableIndexCuda index;
  TableSumsCuda sums;
};

template <typename U>
std::vector<U> read(const device::Stream& stream, const U* from, std::int64_t count) {
  std::vector<U> out(static_cast<std::size_t>(count));
  device::copy_to_host(stream, out.data(), from, out.size() * sizeof(U));
  stream.synchronize();
  return out;
}

template <typename T>
typename Problem<T>::Output Problem<T>::run(bool applied) const {
  const OnDevice<T> d(*this);
  StepDecision decision;
  decision.applied = applied ? 1 : 0;
  decision.table_lr = kTableLr;
  const DeviceArray<StepDecision> d_decision(std::vector<StepDecision>{decision});
  const DeviceArray<float> d_table(table), d_acc(acc);
  const device::Stream stream("test");
  table_index_cuda(stream, d.sources, d.index);
  table_reduce_cuda<T>(stream, {d.sources, d.index, d.sums, kScale});
  table_apply_cuda<float>(stream,
                          {d.index, d.sums, d_decision.data(), kEps, d_table.data(), d_acc.data()});
  Output out;
  const std::int64_t unique = read(stream, d.index.unique, 1)[0];
  EXPECT_LE(unique, d.index.max_unique());
  out.rows = read(stream, d.index.rows, unique);
  out.starts = read(stream, d.index.starts, unique + 1);
  out.places = read(stream, d.index.places, out.starts.back());
  out.g = read(stream, d.sums.g, unique * shape.width);
  out.not_finite = read(stream, d.sums.not_finite, 1)[0];
  out.table = d_table.read();
  out.acc = d_acc.read();
  return out;
}

class GpuTable : public device::testing::GpuTest, public ::testing::WithParamInterface<Shape> {};

TEST_P(GpuTable, IndexGroupsPlacesByAscendingRow) {
  const Problem<float> p(GetParam());
  const auto out = p.run();
  const auto places = p.places();
  const auto ref = dedup_ref(p.lookups());
  ASSERT_EQ(out.rows.size(), ref.size());
  std::size_t u = 0;
  for (const auto& [row, at] : ref) {
    ASSERT_EQ(out.rows[u], row);
    ASSERT_EQ(static_cast<std::size_t>(out.starts[u + 1] - out.starts[u]), at.size()) << row;
    for (std::size_t i = 0; i < at.size(); ++i) {
      ASSERT_EQ(out.places[static_cast<std::size_t>(out.starts[u]) + i], places[at[i]]) << row;
    }
    ++u;
  }
}

template <typename T>
void expect_update(const Shape& shape) {
  const Problem<T> p(shape);
  const auto out = p.run();
  const auto lookups = p.lookups();
  const auto d_rows = p.d_rows();
  const auto width = static_cast<std::size_t>(shape.width);
  auto table = to<double>(p.table), acc = to<double>(p.acc);
  table_adagrad_ref(lookups, to<double>(d_rows), width, kTableLr, kEps, kScale, table, acc);
  auto table_naive = p.table, acc_naive = p.acc;
  table_adagrad_ref(lookups, d_rows, width, kTableLr, kEps, kScale, table_naive, acc_naive);
  EXPECT_EQ(out.not_finite, 0);
  EXPECT_TRUE(near_reference(out.table, table, table_naive));
  EXPECT_TRUE(near_reference(out.acc, acc, acc_naive));
}

TEST_P(GpuTable, UpdateMatchesReference) {
  expect_update<float>(GetParam());
  expect_update<BFloat16>(GetParam());
}

TEST_P(GpuTable, BitsDependOnTheBatchAlone) {
  const Problem<BFloat16> p(GetParam());
  const auto once = p.run();
  for (const int slack : {0, 9, 700}) {
    const auto other = Problem<BFloat16>(GetParam(), slack).run();
    EXPECT_TRUE(same_bits(once.g, other.g)) << slack;
    EXPECT_TRUE(same_bits(once.table, other.table)) << slack;
    EXPECT_TRUE(same_bits(once.acc, other.acc)) << slack;
  }
}

TEST_P(GpuTable, NothingChangesWhenTheStepIsNotApplied) {
  const Problem<float> p(GetParam());
  const auto out = p.run(false);
  EXPECT_TRUE(same_bits(out.table, p.table));
  EXPECT_TRUE(same_bits(out.acc, p.acc));
}

TEST_P(GpuTable, SeesEveryNonFiniteGradientOfALookup) {
  Problem<BFloat16> p(GetParam());
  std::vector<std::size_t> found, missing;
  p.each([&](const Kind& kind, std::int32_t row, std::size_t at, std::int32_t) {
    if (&kind != p.kinds.data()) return;
    (row < 0 ? missing : found).push_back(at + static_cast<std::size_t>(p.shape.width) - 1);
  });
  const auto with = [&](std::size_t at, float bad) {
    const float saved = std::exchange(p.kinds[0].dx[at], bad);
    const auto not_finite = p.run().not_finite;
    p.kinds[0].dx[at] = saved;
    return not_finite;
  };
  for (const float bad : {kNan, std::numeric_limits<float>::infinity()}) {
    for (std::size_t i = 0; i < found.size(); i += 1 + found.size() / 6) {
      EXPECT_EQ(with(found[i], bad), 1) << i;
    }
    if (!found.empty()) {
      EXPECT_EQ(with(found.back(), -bad), 1);
    }
    if (!missing.empty()) {
      EXPECT_EQ(with(missing.back(), bad), 0) << "a missing lookup has no gradient";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuTable,
                         ::testing::Values(Shape{0, 5, 8}, Shape{1, 1, 1}, Shape{50, 1, 3},
                                           Shape{11, 7, 4}, Shape{257, 64, 32},
                                           Shape{1700, 3000, 36}, Shape{1000, 2000000, 1},
                                           Shape{200, 65, 37}, Shape{900, 1000, 128},
                                           Shape{300, 40, 300, 5}, Shape{1500, 100, 128, 9},
                                           Shape{9000, 255, 64, 9}, Shape{4000, 256, 33, 5}));

}  // namespace
}  // namespace paceline::ops
