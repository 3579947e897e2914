#include "data/synth/synth.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "data/synth/rows.hpp"
#include "data/synth/world.hpp"
#include "data/synth/writer.hpp"
#include "pipeline/task_pool.hpp"

namespace paceline::data::synth {
namespace fs = std::filesystem;
namespace {

constexpr const char* kStaging = ".synth-tmp";
constexpr const char* kAbout = "synth.json";
constexpr std::array<const char*, 3> kSplits{"train", "valid", "test"};

Error file_error(const char* what, const fs::path& path, const std::error_code& error) {
  return Error(Code::kIo, fmt::format("cannot {} {}: {}", what, path.string(), error.message()));
}

struct FilePlan {
  std::string name;  // relative to the output folder
  std::int64_t first = 0, rows = 0;
};

void plan_folder(const std::string& folder, std::int64_t first, std::int64_t rows,
                 const Options& options, std::vector<FilePlan>& plan) {
  for (std::int64_t done = 0, i = 0; done < rows; ++i) {
    const std::int64_t n = std::min(options.rows_per_file, rows - done);
    plan.push_back({fmt::format("{}part-{:05}.parquet", folder, i), first + done, n});
    done += n;
  }
}

std::vector<FilePlan> plan_files(const Options& o) {
  std::vector<FilePlan> plan;
  if (o.one_folder) {
    plan_folder("", 0, o.rows, o, plan);
    return plan;
  }
  const auto rows = static_cast<double>(o.rows);
  const std::int64_t train = std::llround(rows * o.split[0]);
  const std::int64_t valid =
      std::min<std::int64_t>(std::llround(rows * o.split[1]), o.rows - train);
  const std::array<std::int64_t, 4> ends{0, train, o.split[2] > 0.0 ? train + valid : o.rows,
                                         o.rows};
  for (std::size_t s = 0; s < kSplits.size(); ++s) {
    plan_folder(std::string(kSplits[s]) + "/", ends[s], ends[s + 1] - ends[s], o, plan);
  }
  return plan;
}

// What the data were made with, for people and programs.
std::string about_text(const Options& o) {
  std::string history, actions;
  for (const auto& r : o.history) {
    history += fmt::format("{}{{\"min\": {}, \"max\": {}, \"share\": {}}}",
                           history.empty() ? "" : ", ", r.min, r.max, r.share);
  }
  for (std::size_t a = 0; a < kActionInfos.size(); ++a) {
    const std::string base =
        a < o.rates.size() ? fmt::format(", \"base_rate\": {}", o.rates[a]) : std::string();
    actions += fmt::format("{}\n    {{\"name\": \"{}\", \"bit\": {}{}}}", a > 0 ? "," : "",
                           kActionInfos[a].name, kActionInfos[a].bit, base);
  }
  return fmt::format(
      "{{\n  \"made_by\": \"paceline data synth\",\n  \"rows\": {},\n  \"seed\": {},\n"
      "  \"users\": {},\n  \"authors\": {},\n  \"items\": {},\n  \"topics\": {},\n"
      "  \"history\": [{}],\n  \"candidates\": {{\"min\": {}, \"max\": {}}},\n"
      "  \"split\": {},\n  \"rows_per_file\": {},\n  \"row_group_rows\": {},\n"
      "  \"compression\": \"{}\",\n  \"actions\": [{}\n  ]\n}}\n",
      o.rows, o.seed, o.users, o.authors, o.items, o.topics, history, o.candidates.min,
      o.candidates.max,
      o.one_folder ? "null" : fmt::format("[{}, {}, {}]", o.split[0], o.split[1], o.split[2]),
      o.rows_per_file, o.row_group_rows, o.compression, actions);
}

bool made_here(const std::string& name) {
  return name == kAbout || std::find(kSplits.begin(), kSplits.end(), name) != kSplits.end() ||
         (name.starts_with("part-") && name.ends_with(".parquet"));
}

// The hidden folder that files are written to, locked against another process that writes there.
class Staging {
 public:
  static Result<std::unique_ptr<Staging>> create(const fs::path& out, bool overwrite) {
    std::error_code error;
    if (fs::exists(out, error) && !fs::is_directory(out, error)) {
      return Error(Code::kInvalidArgument,
                   fmt::format("{}: found a file, allowed is a folder", out.string()));
    }
    fs::create_directories(out, error);
    if (error) return file_error("create the folder", out, error);
    PL_TRY_VOID(check_contents(out, overwrite));

    const fs::path path = out / kStaging;
    fs::create_directory(path, error);
    if (error) return file_error("create the folder", path, error);
    const int lock = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0 || ::flock(lock, LOCK_EX | LOCK_NB) != 0) {
      const std::error_code why(errno, std::generic_category());
      if (lock >= 0) ::close(lock);
      if (why == std::errc::operation_would_block) {
        return Error(Code::kUnavailable,
                     fmt::format("{}: another process is writing there", out.string()));
      }
      return file_error("lock", path, why);
    }
    std::unique_ptr<Staging> self(new Staging(out, path, lock));
    for (const auto& left : fs::directory_iterator(path, error)) fs::remove_all(left, error);
    if (error) return file_error("clear", path, error);
    return self;
  }

  ~Staging() {
    std::error_code ignored;
    if (!keep_) fs::remove_all(path_, ignored);
    ::close(lock_);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  const fs::path& path() const { return path_; }

  // Moves what an earlier call made out of the way and what is here into place, the description
  // first out and last in. After an error everything is where it was.
  Result<void> publish() {
    const fs::path old = path_ / ".old";
    std::error_code error;
    fs::create_directory(old, error);
    if (error) return file_error("create the folder", old, error);
    std::vector<Move> moves;
    auto moved = move_all(out_, old, true, moves);
    if (moved) moved = move_all(path_, out_, false, moves);
    if (moved) return {};
    for (auto move = moves.rbegin(); move != moves.rend(); ++move) {
      fs::rename(move->to, move->from, error);
      keep_ = keep_ || error;
    }
    if (!keep_) return moved;
    return Error(Code::kIo, fmt::format("{}; what was there before could not be put back: it is in "
                                        "{}, take it out before the next call",
                                        moved.error().message(), old.string()));
  }

 private:
  struct Move {
    fs::path from, to;
  };

  Staging(fs::path out, fs::path path, int lock)
      : out_(std::move(out)), path_(std::move(path)), lock_(lock) {}

  static Result<void> check_contents(const fs::path& out, bool overwrite) {
    std::error_code error;
    std::string other;
    bool holds_anything = false, ours = false;
    for (const auto& entry : fs::directory_iterator(out, error)) {
      const std::string name = entry.path().filename().string();
      if (name == kStaging) continue;
      holds_anything = true;
      ours = ours || name == kAbout;
      if (!made_here(name)) other = name;
    }
    if (error) return file_error("list", out, error);
    if (!holds_anything) return {};
    if (!overwrite) {
      return Error(Code::kInvalidArgument,
                   fmt::format("{} is not empty; allowed: a new or empty folder, or --overwrite",
                               out.string()));
    }
    if (ours && other.empty()) return {};
    return Error(Code::kInvalidArgument,
                 fmt::format("{} holds {}: --overwrite replaces only what data synth made",
                             out.string(), other.empty() ? "no " + std::string(kAbout) : other));
  }

  // Adds what it moved to `moves`, after an error too.
  static Result<void> move_all(const fs::path& from, const fs::path& to, bool about_first,
                               std::vector<Move>& moves) {
    std::error_code error;
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(from, error)) {
      const std::string name = entry.path().filename().string();
      if (made_here(name)) names.push_back(name);
    }
    if (error) return file_error("list", from, error);
    std::sort(names.begin(), names.end());
    std::stable_partition(names.begin(), names.end(),
                          [&](const auto& name) { return (name == kAbout) == about_first; });
    for (const auto& name : names) {
      fs::rename(from / name, to / name, error);
      if (error) return file_error("rename", from / name, error);
      moves.push_back({from / name, to / name});
    }
    return {};
  }

  fs::path out_, path_;
  int lock_;
  bool keep_ = false;
};

// What the threads share while they write.
class Progress {
 public:
  explicit Progress(const OnProgress& on_progress) : on_progress_(on_progress) {}

  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
  bool add_rows(std::int64_t n) {
    const std::lock_guard lock(mutex_);
    rows_ += n;
    if (on_progress_ && !on_progress_(rows_)) stopped_ = true;
    return !stopped();
  }
  void add_file(const Result<FileCounts>& file) {
    const std::lock_guard lock(mutex_);
    if (!file) {
      // What stopped the others is what is told.
      if (!error_ || error_->code() == Code::kCancelled) error_ = file.error();
      stopped_ = true;
      return;
    }
    counts_.files += 1;
    counts_.history_events += file->history_events;
    counts_.candidates += file->candidates;
    counts_.bytes += file->bytes;
  }
  Result<Counts> finish() {
    if (error_) return Error(*error_);
    counts_.rows = rows_;
    return counts_;
  }

 private:
  const OnProgress& on_progress_;
  std::mutex mutex_;
  std::atomic<bool> stopped_{false};
  std::int64_t rows_ = 0;
  Counts counts_;
  std::optional<Error> error_;
};

Result<void> write_about(const fs::path& path, const Options& options) {
  std::ofstream file(path);
  file << about_text(options);
  file.close();
  if (!file) {
    return Error(Code::kIo, fmt::format("cannot write {}: is the disk full?", path.string()));
  }
  return {};
}

}  // namespace

Result<Counts> synthesize(const fs::path& out, const Options& options,
                          const OnProgress& on_progress) try {
  PL_TRY_VOID(check(options));
  PL_TRY(const auto staging, Staging::create(out, options.overwrite));
  if (!options.one_folder) {
    for (const char* split : kSplits) {
      std::error_code error;
      fs::create_directory(staging->path() / split, error);
      if (error) return file_error("create the folder", staging->path() / split, error);
    }
  }
  const auto plan = plan_files(options);
  const World world(options);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto threads = std::clamp<std::int64_t>(options.threads > 0 ? options.threads : cores, 1,
                                                std::max<std::int64_t>(1, std::ssize(plan)));

  struct Scratch {
    std::optional<RowDrawer> drawer;
    RowColumns columns;
  };
  std::vector<Scratch> scratch(static_cast<std::size_t>(threads));
  Progress progress(on_progress);
  pipeline::TaskPool pool(static_cast<int>(threads));
  pool.run(std::ssize(plan), [&](std::int64_t chunk, int worker) {
    if (progress.stopped()) return;
    const FilePlan& file = plan[static_cast<std::size_t>(chunk)];
    Scratch& mine = scratch[static_cast<std::size_t>(worker)];
    if (!mine.drawer) mine.drawer.emplace(options, world);
    progress.add_file(write_file(staging->path() / file.name, options, file.first, file.rows,
                                 *mine.drawer, mine.columns,
                                 [&](std::int64_t n) { return progress.add_rows(n); }));
  });
  PL_TRY(auto counts, progress.finish());
  PL_TRY_VOID(write_about(staging->path() / kAbout, options));
  PL_TRY_VOID(staging->publish());
  return counts;
} catch (const std::bad_alloc&) {
  return Error(Code::kOutOfMemory, "no memory for the world; fewer --items or --threads take less");
} catch (const std::system_error& e) {
  return Error(Code::kIo, fmt::format("cannot write {}: {}", out.string(), e.what()));
}

}  // namespace paceline::data::synth
