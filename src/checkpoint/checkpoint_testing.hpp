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
                      add("table.flags", Dtype::kU8, {33}, seed + 7)};
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

// What a difference to `base` says, and what it has to restore to: the tables of `whole` in its
// rows, those of the base in the others.
class DeltaSample {
 public:
  DeltaSample(std::int64_t step, const Base& base, std::vector<std::int64_t> rows)
      : whole_(step), rows_(std::move(rows)) {
    content = whole_.content;
    for (auto& t : content.tables) {
      const std::size_t size = t.bytes.size() / static_cast<std::size_t>(t.shape[0]);
      auto& data = data_.emplace_back(rows_.size() * size);
      for (std::size_t i = 0; i < rows_.size() && size > 0; ++i) {
        std::memcpy(data.data() + i * size,
                    t.bytes.data() + static_cast<std::size_t>(rows_[i]) * size, size);
      }
      t.shape[0] = static_cast<std::int64_t>(rows_.size());
      t.bytes = data;
    }
    content.delta = TableDelta{base, rows_, whole_.content.tables[0].shape[0]};
  }
  DeltaSample(const DeltaSample&) = delete;
  DeltaSample& operator=(const DeltaSample&) = delete;

  void expect(const Loaded& loaded) const;

  Content content;

 private:
  Sample whole_;
  std::vector<std::int64_t> rows_;
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

inline void DeltaSample::expect(const Loaded& loaded) const {
  expect_tensors(loaded.model, content.model);
  expect_tensors(loaded.optimizer, content.optimizer);
  EXPECT_EQ(loaded.state, content.state);
  const Sample base(content.delta->base.step);
  std::vector<std::vector<std::byte>> merged;
  auto views = base.content.tables;
  for (std::size_t k = 0; k < views.size(); ++k) {
    auto& bytes = merged.emplace_back(views[k].bytes.begin(), views[k].bytes.end());
    const std::size_t size = bytes.size() / static_cast<std::size_t>(views[k].shape[0]);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      std::memcpy(bytes.data() + static_cast<std::size_t>(rows_[i]) * size,
                  data_[k].data() + i * size, size);
    }
    views[k].bytes = bytes;
  }
  expect_tensors(loaded.tables, views);
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

// Fails operation number `at` (from 0), or every one from there on. Operations that only read do
// not count when `writes_only`.
class FailingOps : public FileOps {
 public:
  FailingOps(int at, bool forever, bool writes_only = false)
      : at_(at), forever_(forever), writes_only_(writes_only) {}
  int count() const { return count_; }
  FileOp failed() const { return failed_; }
  static constexpr const char* kText = "no space left (injected)";

 protected:
  Result<void> before(FileOp op, const std::filesystem::path& path) override {
    if (writes_only_ && only_reads(op)) return {};
    const int now = count_++;
    if (now != at_ && !(forever_ && now > at_)) return {};
    if (now == at_) failed_ = op;
    return Error(Code::kIo, path.string() + ": " + kText);
  }

 private:
  int at_, count_ = 0;
  bool forever_, writes_only_;
  FileOp failed_ = FileOp::kRemove;
};

}  // namespace paceline::checkpoint::testing
