// The linear layer's products on the GPU against the fp64 reference of the CPU op.
#include "ops/linear/linear_cuda.hpp"

#include <cmath>
#include <ostream>
#include <vector>

#include "device/testing/gpu_test.hpp"
#include "ops/gelu/gelu_ref.hpp"
#include "ops/linear/linear_ref.hpp"
#include "ops/testing/gpu_values.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT
using device::BFloat16;
using device::testing::DeviceArray;

constexpr std::size_t kWorkspace = std::size_t{32} << 20;

struct Size {
  int rows, in, out, pad;  // pad: of the strides of x and y
};
void PrintTo(const Size& s, std::ostream* os) {
  *os << s.rows << "x" << s.in << "x" << s.out << "+" << s.pad;
}

// What a result may be off: rounding of the inputs is shared, so only sums and the result's type.
double allowed(LinearType result, double magnitude) {
  return (result == LinearType::kBFloat16 ? 1.0 / 128 : 1e-5) * (magnitude + 1.0);
}

template <typename T>
std::vector<float> dense(const std::vector<T>& strided, int rows, int columns, int stride) {
  std::vector<float> out;
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      out.push_back(as_float(strided[static_cast<std::size_t>(r * stride + c)]));
    }
  }
  return out;
}
template <typename T>
std::vector<T> strided(const std::vector<float>& values, int rows, int columns, int stride) {
  std::vector<T> out(static_cast<std::size_t>(rows * stride), as<T>(std::nanf("")));
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      out[static_cast<std::size_t>(r * stride + c)] =
          as<T>(values[static_cast<std::size_t>(r * columns + c)]);
    }
  }
  return out;
}

template <typename T>
constexpr LinearType type_of() {
  return sizeof(T) == 2 ? LinearType::kBFloat16 : LinearType::kFloat;
}

void expect_close(const std::vector<float>& got, const std::vector<double>& want,
                  LinearType result) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], allowed(result, std::abs(want[i]))) << "element " << i;
  }
}

class GpuLinear : public device::testing::GpuTest, public ::testing::WithParamInterface<Size> {
 protected:
  // Values as T holds them, as doubles.
  template <typename T>
  std::vector<float> values(int n, std::uint64_t id, double scale) {
    return all_as_float(all_as<T>(normal_values(n, id, scale)));
  }

  template <typename T, typename R>
  void check_all() {
    const Size s = GetParam();
    const int x_stride = s.in + s.pad, y_stride = s.out + s.pad;
    const double scale = 1.0 / std::sqrt(static_cast<double>(s.in));
    const auto x = values<T>(s.rows * s.in, 1, 1.0);
    const auto w = values<T>(s.out * s.in, 2, scale);
    const auto dy = values<T>(s.rows * s.out, 3, scale);
    DeviceArray<std::byte> workspace(kWorkspace);
    LinearCuda linear("test", workspace.data(), kWorkspace, {});
    const device::Stream stream("test");
    const DeviceArray<T> on_x(strided<T>(x, s.rows, s.in, x_stride));
    const DeviceArray<T> on_dy(strided<T>(dy, s.rows, s.out, y_stride));
    const DeviceArray<T> on_w(all_as<T>(w));
    const auto rows = static_cast<std::size_t>(s.rows), in = static_cast<std::size_t>(s.in),
               out = static_cast<std::size_t>(s.out);
    LinearCudaShape shape;
    shape.rows = s.rows;
    shape.in = s.in;
    shape.out = s.out;
    shape.x_stride = x_stride;
    shape.y_stride = y_stride;
    shape.type = type_of<T>();
    shape.result = type_of<R>();
    const auto run = [&](LinearKind kind, const T* a, const T* b, R* result, bool add) {
      shape.kind = kind;
      shape.add = add;
      const auto product = linear.prepare(shape);
      ASSERT_TRUE(product) << product.error().text();
      linear.run(stream, *product, {a, b, add ? result : nullptr, result, nullptr, 0.5F});
      stream.synchronize();
    };
    for (const bool add : {false, true}) {
      const double base = add ? 1.0 : 0.0;
      const auto want = [&](std::vector<double> product) {
        for (auto& v : product) v = 0.5 * v + base;
        return product;
      };
      const DeviceArray<R> y(
          strided<R>(std::vector<float>(rows * out, 1.0F), s.rows, s.out, y_stride));
      run(LinearKind::kForward, on_x.data(), on_w.data(), y.data(), add);
      expect_close(dense(y.read(), s.rows, s.out, y_stride),
                   want(linear_ref(rows, in, out, to<double>(x), to<double>(w))), shape.result);
      const DeviceArray<R> dx(
          strided<R>(std::vector<float>(rows * in, 1.0F), s.rows, s.in, x_stride));
      run(LinearKind::kDataGrad, on_dy.data(), on_w.data(), dx.data(), add);
      expect_close(dense(dx.read(), s.rows, s.in, x_stride),
                   want(linear_data_grad_ref(rows, in, out, to<double>(dy), to<double>(w))),
                   shape.result);
      const DeviceArray<R> dw(std::vector<R>(out * in, as<R>(1.0F)));
      run(LinearKind::kWeightGrad, on_x.data(), on_dy.data(), dw.data(), add);
      expect_close(dense(dw.read(), s.out, s.in, s.in),
                   want(linear_weight_grad_ref(rows, in, out, to<double>(x), to<double>(dy))),
                   shape.result);
    }
  }
};

TEST_P(GpuLinear, BFloat16MatchesReference) { check_all<BFloat16, BFloat16>(); }
TEST_P(GpuLinear, BFloat16ToFloatMatchesReference) { check_all<BFloat16, float>(); }
TEST_P(GpuLinear, FloatMatchesReference) { check_all<float, float>(); }

TEST_P(GpuLinear, GeluIsPartOfTheProduct) {
  const Size s = GetParam();
  const int stride = s.out + s.pad;
  const auto x = values<BFloat16>(s.rows * s.in, 1, 1.0);
  const auto w = values<BFloat16>(s.out * s.in, 2, 1.0 / std::sqrt(static_cast<double>(s.in)));
  DeviceArray<std::byte> workspace(kWorkspace);
  LinearCuda linear("test", workspace.data(), kWorkspace, {});
  const device::Stream stream("test");
  LinearCudaShape shape;
  shape.rows = s.rows;
  shape.in = s.in;
  shape.out = s.out;
  shape.x_stride = s.in;
  shape.y_stride = stride;
  shape.epilogue = LinearEpilogue::kGelu;
  const auto product = linear.prepare(shape);
  ASSERT_TRUE(product) << product.error().text();
  const DeviceArray<BFloat16> on_x(all_as<BFloat16>(x)), on_w(all_as<BFloat16>(w));
  const DeviceArray<BFloat16> y(static_cast<std::size_t>(s.rows * stride));
  const DeviceArray<BFloat16> aux(static_cast<std::size_t>(s.rows * stride));
  linear.run(stream, *product, {on_x.data(), on_w.data(), nullptr, y.data(), aux.data()});
  stream.synchronize();
  auto z = linear_ref(static_cast<std::size_t>(s.rows), static_cast<std::size_t>(s.in),
                      static_cast<std::size_t>(s.out), to<double>(x), to<double>(w));
  const auto before = dense(aux.read(), s.rows, s.out, stride);
  expect_close(before, z, LinearType::kBFloat16);
  for (auto& v : z) v = gelu_ref(v);
  expect_close(dense(y.read(), s.rows, s.out, stride), z, LinearType::kBFloat16);

  // The gradient by the data of a layer from these activations: dx = (dy w) gelu'(aux).
  LinearCudaShape back;
  back.kind = LinearKind::kDataGrad;
  back.rows = s.rows;
  back.in = s.out;
  back.out = s.in;
  back.x_stride = stride;
  back.y_stride = s.in;
  back.epilogue = LinearEpilogue::kGeluGrad;
  const auto grad = linear.prepare(back);
  ASSERT_TRUE(grad) << grad.error().text();
  const DeviceArray<BFloat16> dx(static_cast<std::size_t>(s.rows * stride));
  const auto down = values<BFloat16>(s.in * s.out, 4, 1.0 / std::sqrt(static_cast<double>(s.in)));
  const DeviceArray<BFloat16> on_down(all_as<BFloat16>(down));
  linear.run(stream, *grad, {on_x.data(), on_down.data(), nullptr, dx.data(), aux.data()});
  stream.synchronize();
  auto want =
      linear_data_grad_ref(static_cast<std::size_t>(s.rows), static_cast<std::size_t>(s.out),
                           static_cast<std::size_t>(s.in), to<double>(x), to<double>(down));
  for (std::size_t i = 0; i < want.size(); ++i) {
    want[i] *= gelu_slope_ref(static_cast<double>(before[i]));
  }
  expect_close(dense(dx.read(), s.rows, s.out, stride), want, LinearType::kBFloat16);
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuLinear,
                         ::testing::Values(Size{1, 8, 8, 0}, Size{77, 64, 24, 8},
                                           Size{300, 128, 512, 0}, Size{1001, 256, 64, 64},
                                           Size{4096, 512, 128, 0}));

class GpuLinearAlgorithms : public device::testing::GpuTest {
 protected:
  static LinearCudaShape shape() {
    LinearCudaShape s;
    s.kind = LinearKind::kWeightGrad;
    s.rows = 8192;
    s.in = s.x_stride = 256;
    s.out = s.y_stride = 128;
    s.result = LinearType::kFloat;
    return s;
  }
};

TEST_F(GpuLinearAlgorithms, KeptOnesGiveTheSameBitsAgain) {
  DeviceArray<std::byte> workspace(kWorkspace);
  const device::Stream stream("test");
  const DeviceArray<BFloat16> x(all_as<BFloat16>(normal_values(8192 * 256, 1)));
  const DeviceArray<BFloat16> dy(all_as<BFloat16>(normal_values(8192 * 128, 2)));
  const DeviceArray<float> dw(std::size_t{256 * 128});
  const LinearPointers at{x.data(), dy.data(), nullptr, dw.data(), nullptr};
  LinearCuda first("test", workspace.data(), kWorkspace, {});
  const auto product = first.prepare(shape());
  ASSERT_TRUE(product);
  first.tune(stream, *product, at, 8);
  first.run(stream, *product, at);
  stream.synchronize();
  const auto bits = dw.read();
  for (int i = 0; i < 3; ++i) {
    LinearCuda again("test", workspace.data(), kWorkspace, first.algorithms());
    EXPECT_FALSE(again.other_device());
    const auto same = again.prepare(shape());
    ASSERT_TRUE(same);
    again.tune(stream, *same, at, 8);
    EXPECT_EQ(again.algorithms().by_key, first.algorithms().by_key);
    again.run(stream, *same, at);
    stream.synchronize();
    EXPECT_EQ(dw.read(), bits);
  }
}

TEST_F(GpuLinearAlgorithms, MeasuringLeavesTheAddendAlone) {
  DeviceArray<std::byte> workspace(kWorkspace);
  const device::Stream stream("test");
  const DeviceArray<BFloat16> x(all_as<BFloat16>(normal_values(8192 * 256, 1)));
  const DeviceArray<BFloat16> dy(all_as<BFloat16>(normal_values(8192 * 128, 2)));
  const DeviceArray<float> base(normal_values(256 * 128, 3)), dw(std::size_t{256 * 128});
  auto adding = shape();
  adding.add = true;
  LinearCuda linear("test", workspace.data(), kWorkspace, {});
  const auto product = linear.prepare(adding);
  ASSERT_TRUE(product);
  const LinearPointers at{x.data(), dy.data(), base.data(), dw.data(), nullptr};
  linear.tune(stream, *product, at, 4);
  linear.run(stream, *product, at);
  stream.synchronize();
  const auto first = dw.read();
  linear.run(stream, *product, at);
  stream.synchronize();
  EXPECT_EQ(dw.read(), first);
  EXPECT_EQ(base.read(), normal_values(256 * 128, 3));
}

using GpuLinearDeathTest = device::testing::GpuDeathTest;
TEST_F(GpuLinearDeathTest, AMeasuredProductDoesNotAddToItsResult) {
  const auto tune = [] {
    DeviceArray<std::byte> workspace(kWorkspace);
    const DeviceArray<float> a(std::size_t{64});
    LinearCuda linear("test", workspace.data(), kWorkspace, {});
    LinearCudaShape s;
    s.rows = s.in = s.out = s.x_stride = s.y_stride = 8;
    s.type = s.result = LinearType::kFloat;
    s.add = true;
    const auto product = linear.prepare(s);
    const device::Stream stream("test");
    linear.tune(stream, *product, {a.data(), a.data(), a.data(), a.data(), nullptr}, 2);
  };
  EXPECT_DEATH(tune(), "adds to no result");
}

TEST_F(GpuLinearAlgorithms, ThoseOfAnotherDeviceAreNotUsedAndBrokenOnesRefused) {
  DeviceArray<std::byte> workspace(kWorkspace);
  LinearCuda first("test", workspace.data(), kWorkspace, {});
  ASSERT_TRUE(first.prepare(shape()));
  auto kept = first.algorithms();
  ASSERT_EQ(kept.by_key.size(), 1U);
  kept.by_key.begin()->second = "12";
  LinearCuda broken("test", workspace.data(), kWorkspace, kept);
  const auto refused = broken.prepare(shape());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text().find("weight 8192x256x128"), std::string::npos);
  LinearCuda other("another", workspace.data(), kWorkspace, kept);
  EXPECT_TRUE(other.other_device());
  EXPECT_TRUE(other.prepare(shape()));
}

TEST_F(GpuLinearAlgorithms, WholeSumsDoNotDependOnTheNumberOfRows) {
  DeviceArray<std::byte> workspace(kWorkspace);
  const device::Stream stream("test");
  const DeviceArray<BFloat16> x(all_as<BFloat16>(normal_values(2048 * 512, 1)));
  const DeviceArray<BFloat16> w(all_as<BFloat16>(normal_values(128 * 512, 2)));
  const auto run = [&](std::int64_t rows) {
    LinearCuda linear("test", workspace.data(), kWorkspace, {});
    LinearCudaShape s;
    s.rows = rows;
    s.in = s.x_stride = 512;
    s.out = s.y_stride = 128;
    s.split = false;
    const DeviceArray<BFloat16> y(static_cast<std::size_t>(rows * 128));
    const auto product = linear.prepare(s);
    EXPECT_TRUE(product);
    linear.run(stream, *product, {x.data(), w.data(), nullptr, y.data(), nullptr});
    stream.synchronize();
    std::vector<std::uint16_t> bits;
    for (const BFloat16 v : y.read()) bits.push_back(v.bits);
    bits.resize(128);
    return bits;
  };
  const auto alone = run(1);
  for (const std::int64_t rows : {7, 96, 1000, 2048}) EXPECT_EQ(run(rows), alone) << rows;
}

}  // namespace
}  // namespace paceline::ops
