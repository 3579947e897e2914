// The files of a run: config.toml, data_files_*.jsonl, metrics.jsonl, eval.jsonl, saves.jsonl, a
// lock against a second trainer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "data/source.hpp"

namespace paceline::train {

class RunDirectory {
 public:
  // Creates the directory and takes its lock (released by the kernel when the process ends).
  // kUnavailable when another process has it, kIo when it cannot be written.
  static Result<RunDirectory> open(const std::filesystem::path& dir);
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&& other) noexcept;
  ~RunDirectory();

  const std::filesystem::path& path() const { return path_; }

  // Refuses a directory whose config.toml was not written by a run, or that has metrics but no
  // config: those files are somebody's. `checkpoints` is where the run saves: refused when the run
  // saved somewhere else before and has checkpoints there.
  Result<void> check_is_run(const std::string& checkpoints) const;

  // Locks the directory of the checkpoints too, creating it; finds out early that it cannot be
  // written.
  Result<void> lock_checkpoints(const std::filesystem::path& dir);

  // True when eval.jsonl has a line of this step and split.
  bool has_evaluation(std::int64_t step, const std::string& split) const;

  // The files of a dataset that the run was trained on, by its fingerprint; empty when it was
  // never written.
  Result<std::vector<data::FileInfo>> data_files(std::uint64_t fingerprint) const;
  Result<void> write_data_files(std::uint64_t fingerprint,
                                const std::vector<data::FileInfo>& files) const;

  // Replaces config.toml atomically.
  Result<void> write_config(const std::string& resolved) const;

  // Drops lines of metrics.jsonl and eval.jsonl that are newer than `step`, torn ones too, so
  // that a run which goes on from `step` writes each step once. Of saves.jsonl, which keeps every
  // attempt, torn lines alone.
  Result<void> forget_after(std::int64_t step);

  // Appends one object as a line. Not synced to disk: a lost line is written again after a resume.
  // While the disk is full, as a save may make it for a while, lines are kept and written with a
  // later one; kIo for any other failure, and when too many are kept.
  Result<void> append_metrics(const nlohmann::json& object);
  // Writes what is kept; kIo when the disk is still full.
  Result<void> flush_metrics();
  // One object per attempt to save. A line that cannot be written is a warning.
  void append_save(const nlohmann::json& object);

 private:
  RunDirectory(std::filesystem::path path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::filesystem::path path_;
  int lock_ = -1;
  int checkpoint_lock_ = -1;
  std::string kept_;  // lines of metrics.jsonl that wait for space
};

// Appends one object as a line to `file`.
Result<void> append_json_line(const std::filesystem::path& file, const nlohmann::json& object);

}  // namespace paceline::train
