// What the end-to-end tests share: a workspace with data and a config, and the program as a
// process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/testing/impressions.hpp"

namespace paceline::e2e {

struct Output {
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string out, err;
};

// The program, running. wait() collects what it printed.
class Process {
 public:
  explicit Process(const std::vector<std::string>& arguments);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  bool running();
  void signal(int number);
  Output wait();

 private:
  data::testing::TempDir files_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool reaped_ = false;
};

Output run(const std::vector<std::string>& arguments);

// A folder with train.parquet ..., and config.toml for a small ranker that trains in moments.
class Workspace {
 public:
  explicit Workspace(const data::testing::ImpressionOptions& train = {});

  std::filesystem::path dir() const { return dir_.path(); }
  std::string file(const std::string& name) const { return dir_.file(name); }
  std::string config() const { return file("config.toml"); }
  // The arguments of `train` into run directory `name`.
  std::vector<std::string> train(const std::string& name,
                                 const std::vector<std::string>& sets = {}) const;
  std::string run_dir(const std::string& name) const { return file("runs/" + name); }

 private:
  data::testing::TempDir dir_;
};

// The text of that config.
std::string small_config();

std::string read_text(const std::filesystem::path& file);
void write_text(const std::filesystem::path& file, const std::string& text);

// The loss of each logged step as it stands in metrics.jsonl, and lines so far.
std::vector<std::string> losses(const std::string& run_dir);
std::size_t lines(const std::filesystem::path& file);

// Names of the published checkpoints, oldest first.
std::vector<std::string> checkpoints(const std::string& run_dir);
// The bytes of weights, optimizer state and tables of the newest checkpoint.
std::map<std::string, std::string> final_state(const std::string& run_dir);

// Polls until `ready` or the process ends; false when it ended first.
bool wait_until(Process& process, const std::function<bool()>& ready);

}  // namespace paceline::e2e
