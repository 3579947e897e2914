// The safetensors library of Python reads what is written here. `make setup` installs it; skipped
// where it is not.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/checkpoint_testing.hpp"

namespace paceline::checkpoint {
namespace {

using testing::spill;
using testing::TempDir;

constexpr const char* kScript = R"(
import sys
import numpy
from safetensors import safe_open
from safetensors.numpy import load_file
path = sys.argv[1]
t = load_file(path)
assert sorted(t) == ["b.flags", "empty", "ids", "numbers", "weight"], sorted(t)
assert t["weight"].dtype == numpy.float32 and t["weight"].shape == (3, 5)
assert (t["weight"] == numpy.arange(15, dtype=numpy.float32).reshape(3, 5) / 4).all()
assert t["ids"].dtype == numpy.int64 and t["ids"].tolist() == [-1, 1 << 40]
assert t["numbers"].dtype == numpy.int32 and t["numbers"].tolist() == [7]
assert t["b.flags"].dtype == numpy.uint8 and t["b.flags"].tolist() == [1, 0, 255]
assert t["empty"].shape == (0, 4)
with safe_open(path, framework="numpy") as f:
    assert f.get_slice("weight")[1:2, :2].tolist() == [[1.25, 1.5]]
)";

TEST(PythonReader, ReadsOurFiles) {
  const char* chosen = std::getenv("PACELINE_PYTHON");
  const std::string python = chosen != nullptr ? chosen : PACELINE_VENV "/bin/python";
  if (std::system((python + " -c 'import numpy, safetensors' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP()
        << python
        << " has no numpy and safetensors (make setup, or PACELINE_PYTHON names one that has)";
  }
  const TempDir dir;
  std::vector<float> weight(15);
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i) / 4;
  const std::int64_t ids[] = {-1, std::int64_t{1} << 40};
  const std::int32_t numbers[] = {7};
  const std::uint8_t flags[] = {1, 0, 255};
  const TensorView views[] = {{"weight", Dtype::kF32, {3, 5}, std::as_bytes(std::span(weight))},
                              {"b.flags", Dtype::kU8, {3}, std::as_bytes(std::span(flags))},
                              {"ids", Dtype::kI64, {2}, std::as_bytes(std::span(ids))},
                              {"numbers", Dtype::kI32, {1}, std::as_bytes(std::span(numbers))},
                              {"empty", Dtype::kF32, {0, 4}, {}}};
  ASSERT_TRUE(write_safetensors(dir / "f.safetensors", views).ok());
  spill(dir / "read.py", kScript);
  const auto command =
      python + " " + (dir / "read.py").string() + " " + (dir / "f.safetensors").string();
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace paceline::checkpoint
