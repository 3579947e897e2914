// Measures saving and restoring without a run; bench/checkpoint.py runs it and keeps the figures.
//
//   paceline_bench_checkpoint save DIR MIB STEP     publishes a state of so many MiB as that step
//   paceline_bench_checkpoint restore DIR MIB TURNS restores one from the disk, in turns with a
//   plain
//                                                   read of its files
//   paceline_bench_checkpoint wait DIR MIB SAVES    what the training thread waits for a save when
//                                                   no step hides any of it, and a plain copy of
//                                                   the same state
//   paceline_bench_checkpoint flip DIR FLIPS        flips a bit of each byte of small files, and so
//                                                   many of large ones: who notices
//
// Prints JSON, one object a line; checks what was saved and fails when it is wrong.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/saver.hpp"
#include "core/buffer.hpp"
#include "core/clock.hpp"

namespace paceline {
namespace {

namespace fs = std::filesystem;
using checkpoint::Content;
using nlohmann::json;

constexpr std::int64_t kTableWidth = 32;
constexpr std::size_t kDenseFloats = std::size_t{1} << 18;

void print(const json& object) {
  fmt::print("{}\n", object.dump());
  std::fflush(stdout);
}

// A state like that of a run: dense parameters with two moments, and a table that takes the rest.
// Its bytes follow from the step.
class State {
 public:
  explicit State(std::int64_t mib)
      : rows_(std::max<std::int64_t>(1, (mib << 20) / (kTableWidth + 1) / 4)),
        weights_(kDenseFloats * sizeof(float)),
        moments_(2 * kDenseFloats * sizeof(float)),
        table_(floats(rows_ * kTableWidth)),
        adagrad_(floats(rows_)) {}

  void become(std::int64_t step) {
    step_ = step;
    std::uint64_t at = static_cast<std::uint64_t>(step) << 40;
    for (HostBuffer* b : {&weights_, &moments_, &table_, &adagrad_}) {
      for (auto& word : b->as<std::uint64_t>()) word = (at++ + 1) * 0x9E3779B97F4A7C15U;
    }
  }

  Content content() const {
    Content c;
    c.step = step_;
    c.state = {{"step", step_}};
    const auto n = static_cast<std::int64_t>(kDenseFloats);
    c.model = {view("head.weight", {n}, weights_)};
    c.optimizer = {view("adam.moments", {2, n}, moments_)};
    c.tables = {view("table.rows", {rows_, kTableWidth}, table_),
                view("table.adagrad", {rows_}, adagrad_)};
    return c;
  }
  std::size_t bytes() const {
    return weights_.size_bytes() + moments_.size_bytes() + table_.size_bytes() +
           adagrad_.size_bytes();
  }
  HostBuffer* place(const std::string& name) {
    if (name == "head.weight") return &weights_;
    if (name == "adam.moments") return &moments_;
    if (name == "table.rows") return &table_;
    return name == "table.adagrad" ? &adagrad_ : nullptr;
  }
  bool operator==(const State& o) const {
    const auto same = [](const HostBuffer& a, const HostBuffer& b) {
      return a.size_bytes() == b.size_bytes() &&
             std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
    };
    return same(weights_, o.weights_) && same(moments_, o.moments_) && same(table_, o.table_) &&
           same(adagrad_, o.adagrad_);
  }
  // What saving has to copy, with nothing around it.
  void copy_from(const State& o) {
    const auto copy = [](HostBuffer& to, const HostBuffer& from) {
      std::memcpy(to.data(), from.data(), from.size_bytes());
    };
    copy(weights_, o.weights_);
    copy(moments_, o.moments_);
    copy(table_, o.table_);
    copy(adagrad_, o.adagrad_);
  }

 private:
  static std::size_t floats(std::int64_t n) { return static_cast<std::size_t>(n) * sizeof(float); }
  static checkpoint::TensorView view(std::string name, std::vector<std::int64_t> shape,
                                     const HostBuffer& b) {
    return {std::move(name), checkpoint::Dtype::kF32, std::move(shape), {b.data(), b.size_bytes()}};
  }

  std::int64_t step_ = 0, rows_;
  HostBuffer weights_, moments_, table_, adagrad_;
};

class Into : public checkpoint::Receiver {
 public:
  explicit Into(State& state) : state_(state) {}
  Result<void> state(const json&, const fs::path&) override { return {}; }
  Result<std::optional<std::span<std::byte>>> tensor(checkpoint::Part,
                                                     const checkpoint::TensorInfo& info,
                                                     const fs::path& from) override {
    HostBuffer* const b = state_.place(info.name);
    if (b == nullptr) {
      return Error(Code::kInvalidArgument, fmt::format("{}: {}", from.string(), info.name));
    }
    return std::optional(std::span(b->data(), b->size_bytes()));
  }

 private:
  State& state_;
};

Result<void> expect_saved(const fs::path& path, std::int64_t mib, const State& expected) {
  State read(mib);
  Into into(read);
  PL_TRY_VOID(checkpoint::restore(path, into));
  if (!(read == expected)) {
    return Error(Code::kInternal, fmt::format("{} is not what was saved", path.string()));
  }
  return {};
}

Result<void> save(const fs::path& dir, std::int64_t mib, std::int64_t step) {
  State state(mib);
  state.become(step);
  const auto content = state.content();
  const auto start = Clock::now();
  PL_TRY(const auto published, checkpoint::publish(dir, content));
  const double s = seconds_since(start);
  print({{"bytes", published.bytes}, {"s", s}, {"path", published.path.string()}});
  return {};
}

std::vector<fs::path> files_of(const fs::path& checkpoint) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(checkpoint)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// Out of memory, so that reading them means the disk.
void forget(const std::vector<fs::path>& files) {
  for (const auto& file : files) {
    const int fd = ::open(file.c_str(), O_RDONLY);
    PL_CHECK(fd >= 0 && ::fsync(fd) == 0 && ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0,
             "a file that can be forgotten");
    ::close(fd);
  }
}

// What a restore has to do at least: all bytes, into memory of their own.
void read_plainly(const std::vector<fs::path>& files, std::span<std::byte> memory) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  for (const auto& file : files) {
    const int fd = ::open(file.c_str(), O_RDONLY);
    PL_CHECK(fd >= 0, "a file that can be read");
    for (;;) {
      const auto n = ::read(fd, memory.data(), std::min(kPiece, memory.size()));
      PL_CHECK(n >= 0, "a file that can be read");
      if (n == 0) break;
      memory = memory.subspan(static_cast<std::size_t>(n));
    }
    ::close(fd);
  }
}

Result<void> restore(const fs::path& dir, std::int64_t mib, std::int64_t turns) {
  State saved(mib), read(mib);
  saved.become(1);
  PL_TRY(const auto published, checkpoint::publish(dir, saved.content()));
  PL_TRY_VOID(expect_saved(published.path, mib, saved));
  const auto files = files_of(published.path);
  HostBuffer plain(published.bytes + 1);
  const auto timed = [&](const auto& work) {
    forget(files);
    const auto start = Clock::now();
    work();
    return seconds_since(start);
  };
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    const auto plainly = [&] { read_plainly(files, {plain.data(), plain.size_bytes()}); };
    // Who comes first changes.
    double plain_s = turn % 2 == 0 ? timed(plainly) : 0.0;
    Into into(read);
    Result<checkpoint::Restored> restored = Error(Code::kInternal, "not yet");
    const double s = timed([&] { restored = checkpoint::restore(published.path, into); });
    if (turn % 2 != 0) plain_s = timed(plainly);
    if (!restored) return Error(std::move(restored.error()));
    if (!(read == saved)) return Error(Code::kInternal, "what was read is not what was saved");
    print({{"bytes", restored->bytes}, {"s", s}, {"plain_s", plain_s}});
  }
  return {};
}

Result<void> wait(const fs::path& dir, std::int64_t mib, std::int64_t saves) {
  State live(mib), copy(mib);
  PL_TRY(auto saver,
         checkpoint::Saver::create({.dir = dir, .retention = {.keep_last = 1}}, live.content()));
  // The first turn is not counted: its memory has no pages yet.
  for (std::int64_t step = 0; step <= saves; ++step) {
    live.become(step + 1);
    auto start = Clock::now();
    copy.copy_from(live);
    const double copy_s = seconds_since(start);
    start = Clock::now();
    PL_TRY_VOID(saver->save(live.content()));
    PL_TRY_VOID(saver->before_table_update());
    const double wait_s = seconds_since(start);
    PL_TRY_VOID(saver->finish());
    const auto reports = saver->take_reports();
    if (reports.size() != 1) return Error(Code::kInternal, "one save, one report");
    PL_TRY_VOID(expect_saved(reports[0].path, mib, copy));
    if (step == 0) continue;
    print({{"bytes", live.bytes()},
           {"copy_s", copy_s},
           {"wait_s", wait_s},
           {"told_s", reports[0].wait_s}});
  }
  return {};
}

// One bit of a file, there and back.
class FlippedBit {
 public:
  FlippedBit(fs::path file, std::uint64_t byte, unsigned bit)
      : file_(std::move(file)), byte_(byte), bit_(bit) {
    flip();
  }
  ~FlippedBit() { flip(); }

 private:
  void flip() {
    std::fstream f(file_, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(static_cast<std::streamoff>(byte_));
    const auto value = static_cast<char>(f.get() ^ (1 << bit_));
    f.seekp(static_cast<std::streamoff>(byte_));
    f.put(value);
    PL_CHECK(f.good(), "a file that can be changed");
  }
  fs::path file_;
  std::uint64_t byte_;
  unsigned bit_;
};

struct Noticed {
  std::int64_t flips = 0, by_verify = 0, by_restore = 0;
};

Result<void> flip_one(const fs::path& checkpoint, const fs::path& file, std::uint64_t byte,
                      unsigned bit, State& read, Noticed& noticed) {
  const FlippedBit flipped(file, byte, bit);
  ++noticed.flips;
  const auto info = checkpoint::verify(checkpoint);
  noticed.by_verify += !info || !info->complete ? 1 : 0;
  Into into(read);
  noticed.by_restore += checkpoint::restore(checkpoint, into) ? 0 : 1;
  return {};
}

Result<void> flip(const fs::path& dir, std::int64_t flips) {
  constexpr std::int64_t kMib = 4;
  State state(kMib), read(kMib);
  state.become(1);
  PL_TRY(const auto published, checkpoint::publish(dir, state.content()));
  PL_TRY_VOID(expect_saved(published.path, kMib, state));
  std::mt19937_64 random(7);
  Noticed small, large;
  std::vector<fs::path> large_files;
  for (const auto& entry : fs::directory_iterator(published.path)) {
    if (entry.file_size() > 64 << 10) {
      large_files.push_back(entry.path());
      continue;
    }
    for (std::uint64_t byte = 0; byte < entry.file_size(); ++byte) {
      PL_TRY_VOID(flip_one(published.path, entry.path(), byte, static_cast<unsigned>(random() % 8),
                           read, small));
    }
  }
  std::sort(large_files.begin(), large_files.end());
  for (std::int64_t i = 0; i < flips; ++i) {
    const auto& file = large_files[static_cast<std::size_t>(i) % large_files.size()];
    PL_TRY_VOID(flip_one(published.path, file, random() % fs::file_size(file),
                         static_cast<unsigned>(random() % 8), read, large));
  }
  // All bits are back.
  PL_TRY_VOID(expect_saved(published.path, kMib, state));
  for (const auto& [files, n] : {std::pair("small", small), std::pair("large", large)}) {
    print({{"files", files},
           {"flips", n.flips},
           {"by_verify", n.by_verify},
           {"by_restore", n.by_restore}});
  }
  return {};
}

Result<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || value < 1) {
    return Error(Code::kInvalidArgument, fmt::format("{} is not a whole number >= 1", text));
  }
  return value;
}

Result<void> run(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  const int wanted = what == "flip" ? 4 : 5;
  if ((what != "save" && what != "restore" && what != "wait" && what != "flip") || argc != wanted) {
    return Error(Code::kInvalidArgument,
                 "save DIR MIB STEP, restore DIR MIB TURNS, wait DIR MIB SAVES or "
                 "flip DIR FLIPS");
  }
  PL_TRY(const auto first, number(argv[3]));
  if (what == "flip") return flip(argv[2], first);
  PL_TRY(const auto second, number(argv[4]));
  if (what == "save") return save(argv[2], first, second);
  if (what == "restore") return restore(argv[2], first, second);
  return wait(argv[2], first, second);
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  const auto done = paceline::run(argc, argv);
  if (!done) fmt::print(stderr, "{}\n", done.error().text());
  return done ? 0 : 1;
}
