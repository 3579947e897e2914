// Tests only: directories that go away, small checkpoints whose every byte follows from the step,
// and file operations that fail or stop the process.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/file_ops.hpp"

namespace paceline::checkpoint::testing {

// In memory where there is such a file system: the tests sync hundreds of times.
class TempDir {
 public:
  TempDir() {
    const bool in_memory = ::access("/dev/shm", W_OK | X_OK) == 0;
    const auto parent = in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string name = (parent / "paceline-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary directory";
    path_ = name;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A checkpoint with tensors of several dtypes and odd sizes, owned here.
class Sample {
 public:
  explicit Sample(std::int64_t step) {
    content.step = step;
    const auto seed = static_cast<unsigned>(step);
    content.model = {add("embed.weight", Dtype::kF32, {7, 5}, seed + 1),
                     add("a.norm", Dtype::kBF16, {3}, seed + 2),
                     add("empty", Dtype::kF32, {0, 4}, 0)};
    content.optimizer = {add("adam.m", Dtype::kF32, {7, 5}, seed + 3),
                         add("adam.steps", Dtype::kI64, {}, seed + 4)};
    content.tables = {add("table.rows", Dtype::kF32, {33, 4}, seed + 5),
                      add("table.ids", Dtype::kI32, {33}, seed + 6),
                      add("flags", Dtype::kU8, {11}, seed + 7)};
    content.state = {{"step", step}, {"loss", 0.1 * static_cast<double>(step)}, {"name", "käse"}};
  }
  Sample(const Sample&) = delete;
  Sample& operator=(const Sample&) = delete;

  Content content;

 private:
  TensorView add(std::string name, Dtype dtype, std::vector<std::int64_t> shape, unsigned seed) {
    std::size_t bytes = size_of(dtype);
    for (const auto n : shape) bytes *= static_cast<std::size_t>(n);
    auto& data = data_.emplace_back(bytes);
    for (auto& b : data) b = static_cast<std::byte>((seed = seed * 1664525U + 1013904223U) >> 24);
    return {std::move(name), dtype, std::move(shape), data};
  }
  std::vector<std::vector<std::byte>> data_;
};

inline void expect_tensors(const std::vector<Tensor>& read,
                           const std::vector<TensorView>& written) {
  ASSERT_EQ(read.size(), written.size());
  for (const auto& w : written) {
    SCOPED_TRACE(w.name);
    const Tensor* found = nullptr;
    for (const auto& r : read) {
      if (r.name == w.name) found = &r;
    }
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->dtype, w.dtype);
    EXPECT_EQ(found->shape, w.shape);
    ASSERT_EQ(found->bytes.size_bytes(), w.bytes.size());
    EXPECT_TRUE(w.bytes.empty() ||
                std::memcmp(found->bytes.data(), w.bytes.data(), w.bytes.size()) == 0);
  }
}

// `loaded` is, to the last byte, the sample of its step.
inline void expect_sample(const Loaded& loaded) {
  const Sample sample(loaded.step);
  expect_tensors(loaded.model, sample.content.model);
  expect_tensors(loaded.optimizer, sample.content.optimizer);
  expect_tensors(loaded.tables, sample.content.tables);
  EXPECT_EQ(loaded.state, sample.content.state);
}

inline std::string slurp(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void spill(const std::filesystem::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

// Names in a directory, sorted; hidden ones too.
inline std::vector<std::string> names_in(const std::filesystem::path& dir) {
  std::vector<std::string> names;
  for (const auto& e : std::filesystem::directory_iterator(dir)) {
    names.push_back(e.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Fails operation number `at` (from 0), or every one from there on.
class FailingOps : public FileOps {
 public:
  FailingOps(int at, bool forever) : at_(at), forever_(forever) {}
  int count() const { return count_; }
  FileOp failed() const { return failed_; }
  static constexpr const char* kText = "no space left (injected)";

 protected:
  Result<void> before(FileOp op, const std::filesystem::path& path) override {
    const int now = count_++;
    if (now != at_ && !(forever_ && now > at_)) return {};
    if (now == at_) failed_ = op;
    return Error(Code::kIo, path.string() + ": " + kText);
  }

 private:
  int at_, count_ = 0;
  bool forever_;
  FileOp failed_ = FileOp::kRemove;
};

}  // namespace paceline::checkpoint::testing
