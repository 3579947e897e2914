#include "checkpoint/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.hpp"

namespace paceline::checkpoint {
namespace {

using testing::expect_tensors;
using ::testing::HasSubstr;
using testing::Sample;
using testing::slurp;
using testing::spill;
using testing::TempDir;

TEST(Safetensors, RoundTrip) {
  const TempDir dir;
  const Sample sample(42);
  for (const auto* tensors :
       {&sample.content.model, &sample.content.optimizer, &sample.content.tables}) {
    const auto file = dir / (std::to_string(tensors->size()) + tensors->front().name);
    ASSERT_TRUE(write_safetensors(file, *tensors).ok());
    const auto read = read_safetensors(file);
    ASSERT_TRUE(read.ok()) << read.error().text();
    expect_tensors(*read, *tensors);
  }
}

TEST(Safetensors, NoTensors) {
  const TempDir dir;
  ASSERT_TRUE(write_safetensors(dir / "none", {}).ok());
  const auto read = read_safetensors(dir / "none");
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_TRUE(read->empty());
}

// The layout byte by byte: header length, header padded to 8, data largest elements first.
TEST(Safetensors, LayoutOfTheFile) {
  const TempDir dir;
  const std::uint8_t bytes[] = {1, 2, 3};
  const std::int64_t number[] = {-2};
  const TensorView views[] = {{"b", Dtype::kU8, {3}, std::as_bytes(std::span(bytes))},
                              {"a", Dtype::kI64, {}, std::as_bytes(std::span(number))}};
  ASSERT_TRUE(write_safetensors(dir / "f", views).ok());
  std::string header = R"({"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                       R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string length{static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(slurp(dir / "f"), length + header + "\xfe\xff\xff\xff\xff\xff\xff\xff\x01\x02\x03");
}

TEST(Safetensors, AFileIsNeverOverwritten) {
  const TempDir dir;
  spill(dir / "f", "precious");
  const auto written = write_safetensors(dir / "f", {});
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code(), Code::kIo);
  EXPECT_THAT(written.error().text(), HasSubstr("File exists"));
  EXPECT_EQ(slurp(dir / "f"), "precious");
}

TEST(Safetensors, LargeTensorIsWrittenInPieces) {
  const TempDir dir;
  std::vector<float> values((std::size_t{3} << 20) / 4 + 5);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const TensorView view{"big",
                        Dtype::kF32,
                        {static_cast<std::int64_t>(values.size())},
                        std::as_bytes(std::span(values))};
  ASSERT_TRUE(write_safetensors(dir / "f", {&view, 1}).ok());
  const auto read = read_safetensors(dir / "f");
  ASSERT_TRUE(read.ok());
  expect_tensors(*read, {view});
}

std::string file_of(const std::string& header, const std::string& data) {
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
  return length + header + data;
}

TEST(Safetensors, ReadsWhatOthersWrite) {
  const TempDir dir;
  spill(dir / "f", file_of(R"({"__metadata__":{"format":"pt"},)"
                           R"("y":{"shape":[2],"data_offsets":[4,6],"dtype":"U8"},)"
                           R"("x":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}}   )",
                           "abcdef"));
  const auto read = read_safetensors(dir / "f");
  ASSERT_TRUE(read.ok()) << read.error().text();
  ASSERT_EQ(read->size(), 2U);
  EXPECT_EQ((*read)[0].name, "x");
  EXPECT_EQ(std::memcmp((*read)[1].bytes.data(), "ef", 2), 0);
}

struct Bad {
  const char* name;
  std::string bytes;
  const char* says;
};

TEST(Safetensors, RefusesWhatIsCorrupt) {
  const auto entry = [](const std::string& rest) { return R"({"x":{"dtype":"U8",)" + rest + "}}"; };
  const std::string good = entry(R"("shape":[4],"data_offsets":[0,4])");
  const std::vector<Bad> all = {
      {"empty", "", "too few"},
      {"seven bytes", std::string(7, '\0'), "too few"},
      {"length beyond the file", std::string(8, '\x01'), "does not fit"},
      {"length just beyond the file", std::string("\x03\0\0\0\0\0\0\0{}", 10), "does not fit"},
      {"length near 2^64", std::string(8, '\xff') + "{}", "does not fit"},
      {"length zero", std::string(8, '\0'), "not a JSON object"},
      {"not JSON", file_of("{\"x\":", ""), "not a JSON object"},
      {"a list", file_of("[]", ""), "not a JSON object"},
      {"deep nesting", file_of(std::string(100000, '['), ""), "not a JSON object"},
      {"entry is a number", file_of(R"({"x":3})", ""), "are needed"},
      {"no dtype", file_of(R"({"x":{"shape":[],"data_offsets":[0,1]}})", "a"), "are needed"},
      {"unknown dtype",
       file_of(R"({"x":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})", "01234567"), "F64"},
      {"negative dimension", file_of(entry(R"("shape":[-4],"data_offsets":[0,4])"), "abcd"),
       "dimension"},
      {"fractional dimension", file_of(entry(R"("shape":[4.0],"data_offsets":[0,4])"), "abcd"),
       "dimension"},
      {"huge dimension",
       file_of(entry(R"("shape":[18446744073709551615],"data_offsets":[0,4])"), "abcd"),
       "too large"},
      {"overflowing product",
       file_of(entry(R"("shape":[4294967296,4294967296],"data_offsets":[0,0])"), ""), "do not fit"},
      {"offsets reversed", file_of(entry(R"("shape":[4],"data_offsets":[4,0])"), "abcd"),
       "do not fit"},
      {"offsets and shape differ", file_of(entry(R"("shape":[3],"data_offsets":[0,4])"), "abcd"),
       "do not fit"},
      {"three offsets", file_of(entry(R"("shape":[4],"data_offsets":[0,4,4])"), "abcd"), "two"},
      {"negative offset", file_of(entry(R"("shape":[4],"data_offsets":[-4,0])"), "abcd"), "two"},
      {"truncated data", file_of(good, "abc"), "describes 4 bytes"},
      {"bytes left over", file_of(good, "abcde"), "describes 4 bytes"},
      {"overlap",
       file_of(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
               R"("y":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
               "abcdef"),
       "ends at 4"},
      {"hole",
       file_of(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
               R"("y":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
               "abcdef"),
       "ends at 2"},
  };
  const TempDir dir;
  for (const auto& bad : all) {
    SCOPED_TRACE(bad.name);
    spill(dir / "f", bad.bytes);
    const auto read = read_safetensors(dir / "f");
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code(), Code::kCorruptData);
    EXPECT_THAT(read.error().text(), HasSubstr((dir / "f").string()));
    EXPECT_THAT(read.error().text(), HasSubstr(bad.says));
  }
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const TempDir dir;
  const Sample sample(1);
  ASSERT_TRUE(write_safetensors(dir / "whole", sample.content.tables).ok());
  const std::string whole = slurp(dir / "whole");
  for (std::size_t n = 0; n < whole.size(); n += 7) {
    spill(dir / "f", whole.substr(0, n));
    const auto read = read_safetensors(dir / "f");
    ASSERT_FALSE(read.ok()) << n;
    EXPECT_EQ(read.error().code(), Code::kCorruptData) << n;
  }
}

TEST(Safetensors, MissingFileAndDirectory) {
  const TempDir dir;
  EXPECT_EQ(read_safetensors(dir / "none").error().code(), Code::kNotFound);
  EXPECT_EQ(read_safetensors(dir.path()).error().code(), Code::kCorruptData);
}

TEST(Safetensors, NameThatIsNotUtf8) {
  const TempDir dir;
  const TensorView view{"\xff", Dtype::kF32, {0}, {}};
  const auto written = write_safetensors(dir / "f", {&view, 1});
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace paceline::checkpoint
