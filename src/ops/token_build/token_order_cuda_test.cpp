// Places of tokens and rows put in their order, on the GPU, against plain loops.
#include <limits>

#include "device/testing/gpu_test.hpp"
#include "ops/rms_norm/rms_norm_ref.hpp"
#include "ops/testing/gpu_values.hpp"
#include "ops/testing/numeric.hpp"
#include "ops/token_build/token_build_cuda.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT
using device::BFloat16;
using device::testing::DeviceArray;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::int32_t kOld = 12345;  // left by an earlier batch

// A batch by its lengths, within capacities, and what the op must make of it.
struct Batch {
  Batch(int examples, int prefix, TokenOrderCudaArgs capacities, std::uint64_t id)
      : args(capacities) {
    args.prefix_tokens = prefix;
    const auto fill = [](std::int32_t n) {
      return std::vector<std::int32_t>(static_cast<std::size_t>(n), kOld);
    };
    cu_tokens = cu_history = cu_candidates = fill(args.example_capacity + 1);
    history_len = fill(args.example_capacity);
    positions = fill(args.token_capacity);
    source.assign(positions.size(), -1);
    token_of.assign(static_cast<std::size_t>(args.kind_rows()), -1);
    candidate_position.assign(static_cast<std::size_t>(args.candidate_capacity), 0);
    cu_tokens[0] = cu_history[0] = cu_candidates[0] = 0;
    for (int b = 0; b < examples; ++b) append(b, id);
    counts = {examples, tokens, history, candidates};
  }

  void append(int b, std::uint64_t id) {
    const auto at = static_cast<std::uint64_t>(b);
    const auto h = static_cast<std::int32_t>(random_below(9, at, id));
    const auto c = static_cast<std::int32_t>(1 + random_below(4, at, id + 1));
    const std::int32_t first_history = args.prefix_tokens * args.example_capacity;
    for (int p = 0; p < args.prefix_tokens; ++p) token(p * args.example_capacity + b, p);
    for (int i = 0; i < h; ++i) token(first_history + history++, args.prefix_tokens + i);
    for (int i = 0; i < c; ++i) {
      candidate_position[static_cast<std::size_t>(candidates)] = args.prefix_tokens + h;
      token(first_history + args.history_capacity + candidates++, args.prefix_tokens + h);
    }
    const auto example = static_cast<std::size_t>(b);
    history_len[example] = h;
    cu_tokens[example + 1] = tokens;
    cu_history[example + 1] = history;
    cu_candidates[example + 1] = candidates;
  }
  void token(std::int32_t row, std::int32_t position) {
    const auto t = static_cast<std::size_t>(tokens);
    positions.at(t) = position;
    source.at(t) = row;
    token_of.at(static_cast<std::size_t>(row)) = tokens++;
  }

  TokenOrderCudaArgs args;
  std::vector<std::int32_t> cu_tokens, cu_history, cu_candidates, history_len, positions;
  std::vector<std::int32_t> source, token_of, candidate_position, counts;
  std::int32_t tokens = 0, history = 0, candidates = 0;
};

class GpuTokenOrder : public device::testing::GpuTest {};

std::vector<std::int32_t> ended(std::vector<std::int32_t> values, std::size_t count,
                                std::int32_t with) {
  std::fill(values.begin() + static_cast<std::ptrdiff_t>(count), values.end(), with);
  return values;
}

void expect_order(Batch b) {
  const DeviceArray<std::int32_t> counts(b.counts), cu_tokens(b.cu_tokens),
      cu_history(b.cu_history), cu_candidates(b.cu_candidates), history_len(b.history_len),
      positions(b.positions);
  const auto old = [](const auto& v) { return std::vector<std::int32_t>(v.size(), kOld); };
  const DeviceArray<std::int32_t> source(old(b.source)), token_of(old(b.token_of)),
      candidate_position(old(b.candidate_position));
  b.args.counts = counts.data();
  b.args.cu_tokens = cu_tokens.data();
  b.args.cu_history = cu_history.data();
  b.args.cu_candidates = cu_candidates.data();
  b.args.history_len = history_len.data();
  b.args.positions = positions.data();
  b.args.source = source.data();
  b.args.token_of = token_of.data();
  b.args.candidate_position = candidate_position.data();
  const device::Stream stream("test");
  token_order_cuda(stream, b.args);
  stream.synchronize();
  EXPECT_EQ(source.read(), b.source);
  EXPECT_EQ(token_of.read(), b.token_of);
  EXPECT_EQ(candidate_position.read(), b.candidate_position);
  const auto examples = static_cast<std::size_t>(b.counts[0]);
  EXPECT_EQ(cu_tokens.read(), ended(b.cu_tokens, examples + 1, b.tokens));
  EXPECT_EQ(cu_history.read(), ended(b.cu_history, examples + 1, b.history));
  EXPECT_EQ(cu_candidates.read(), ended(b.cu_candidates, examples + 1, b.candidates));
  EXPECT_EQ(positions.read(), ended(b.positions, static_cast<std::size_t>(b.tokens), 0));
}

TEST_F(GpuTokenOrder, EveryTokenHasItsRowAndTheRestIsCleared) {
  TokenOrderCudaArgs c;
  c.example_capacity = 70;
  c.token_capacity = 70 * 15;
  c.history_capacity = 70 * 8;
  c.candidate_capacity = 70 * 4;
  for (const int prefix : {0, 1, 3}) {
    for (const int examples : {0, 1, 2, 33, 69, 70}) {
      SCOPED_TRACE(::testing::Message() << prefix << " prefix kinds, " << examples << " examples");
      expect_order(Batch(examples, prefix, c, 7));
    }
  }
}

TEST_F(GpuTokenOrder, FillsItsCapacitiesToTheLastRow) {
  TokenOrderCudaArgs c;
  c.example_capacity = 5000;
  c.token_capacity = 5000 * 13;
  c.history_capacity = 5000 * 8;
  c.candidate_capacity = 5000 * 4;
  const Batch counted(5000, 1, c, 3);
  c.token_capacity = counted.tokens;
  c.history_capacity = counted.history;
  c.candidate_capacity = counted.candidates;
  expect_order(Batch(5000, 1, c, 3));
}

struct Rows {
  int rows, width;
};
class GpuTokenAssemble : public device::testing::GpuTest,
                         public ::testing::WithParamInterface<Rows> {
 protected:
  int rows = GetParam().rows, width = GetParam().width;
  // Half of the rows, in reverse order, and -1.
  std::vector<std::int32_t> places() const {
    std::vector<std::int32_t> out;
    for (int i = 0; i < rows; ++i) out.push_back(i % 5 == 4 ? -1 : rows - 1 - i);
    return out;
  }
  std::vector<float> taken(const std::vector<float>& from) const {
    std::vector<float> out;
    for (const auto place : places()) {
      for (int c = 0; c < width; ++c) {
        out.push_back(place < 0 ? 0.0F : from[static_cast<std::size_t>(place * width + c)]);
      }
    }
    return out;
  }

  template <typename T>
  void assemble() {
    const auto kind_rows = all_as<T>(normal_values(std::int64_t{rows} * width, 1, 3.0));
    const auto scale = normal_values(width, 2);
    const DeviceArray<std::int32_t> source(places());
    const DeviceArray<T> from(kind_rows);
    const DeviceArray<T> h(std::vector<T>(kind_rows.size(), as<T>(kNan)));
    const DeviceArray<T> norm(std::vector<T>(kind_rows.size(), as<T>(kNan)));
    const DeviceArray<float> d_scale(scale), inv_rms(static_cast<std::size_t>(rows));
    const device::Stream stream("test");
    constexpr float kEps = 1e-5F;
    token_assemble_cuda<T>(stream, {rows, width, kEps, source.data(), from.data(), d_scale.data(),
                                    h.data(), norm.data(), inv_rms.data()});
    stream.synchronize();
    const auto x = taken(all_as_float(kind_rows));
    EXPECT_TRUE(same_bits(all_as_float(h.read()), x));
    const auto n = static_cast<std::size_t>(rows), w = static_cast<std::size_t>(width);
    const double eps = kEps;
    EXPECT_TRUE(near_reference(inv_rms.read(), inv_rms_ref(n, w, eps, to<double>(x)),
                               inv_rms_ref(n, w, kEps, x)));
    EXPECT_TRUE(near_reference(all_as_float(norm.read()),
                               rms_norm_ref(n, w, eps, to<double>(x), to<double>(scale)),
                               all_as_float(all_as<T>(rms_norm_ref(n, w, kEps, x, scale)))));
  }
  template <typename T>
  void disassemble() {
    const auto dh = all_as<T>(normal_values(std::int64_t{rows} * width, 1));
    const DeviceArray<std::int32_t> token_of(places());
    const DeviceArray<T> from(dh), out(std::vector<T>(dh.size(), as<T>(kNan)));
    const device::Stream stream("test");
    token_disassemble_cuda<T>(stream, {rows, width, token_of.data(), from.data(), out.data()});
    stream.synchronize();
    EXPECT_TRUE(same_bits(all_as_float(out.read()), taken(all_as_float(dh))));
  }
};

TEST_P(GpuTokenAssemble, RowsAreInOrderAndNormalised) {
  assemble<float>();
  assemble<BFloat16>();
}
TEST_P(GpuTokenAssemble, GradientsGoBackToTheirRows) {
  disassemble<float>();
  disassemble<BFloat16>();
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuTokenAssemble,
                         ::testing::Values(Rows{0, 8}, Rows{1, 8}, Rows{131, 256}, Rows{77, 264},
                                           Rows{513, 512}, Rows{9, 1032}, Rows{3, 2560},
                                           Rows{4, 8192}));

}  // namespace
}  // namespace paceline::ops
