#include "e2e/support.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

namespace paceline::e2e {
namespace fs = std::filesystem;

Process::Process(const std::vector<std::string>& arguments) {
  std::vector<std::string> all{PACELINE_PROGRAM};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& a : all) argv.push_back(a.data());
  argv.push_back(nullptr);
  const std::string out = files_.file("out"), err = files_.file("err");
  pid_ = ::fork();
  PL_CHECK(pid_ >= 0, "a new process");
  if (pid_ == 0) {
    ::dup2(::open(out.c_str(), O_CREAT | O_WRONLY, 0600), 1);
    ::dup2(::open(err.c_str(), O_CREAT | O_WRONLY, 0600), 2);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
}

Process::~Process() {
  if (!reaped_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

bool Process::running() {
  if (!reaped_ && ::waitpid(pid_, &status_, WNOHANG) == pid_) reaped_ = true;
  return !reaped_;
}

void Process::signal(int number) { ::kill(pid_, number); }

Output Process::wait() {
  if (!reaped_) {
    ::waitpid(pid_, &status_, 0);
    reaped_ = true;
  }
  return {WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_),
          read_text(files_.file("out")), read_text(files_.file("err"))};
}

Output run(const std::vector<std::string>& arguments) { return Process(arguments).wait(); }

std::string small_config() {
  return R"(
[run]
dir = "runs/default"
[data]
train = "train"
valid = "valid"
test = "valid"
shuffle_window = 3
depth = 2
readers = 1
seed = 1
[batch]
examples = 8
history_len = 10
candidates = 6
[model]
width = 16
layers = 2
query_heads = 2
key_heads = 1
head_dim = 8
ffn = 32
table_width = 8
[train]
epochs = 2
seed = 1
threads = 2
log_every = 1
[optimizer]
lr = 1e-2
[schedule]
kind = "cosine"
warmup = 0.2
final = 0.1
[eval]
bootstrap = 20
)" + data::testing::impression_features();
}

Workspace::Workspace(const data::testing::ImpressionOptions& train) {
  data::testing::write_impressions(dir_.path() / "train", train);
  data::testing::ImpressionOptions valid = train;
  valid.rows = 40;
  valid.files = 1;
  valid.seed = train.seed + 1000;
  data::testing::write_impressions(dir_.path() / "valid", valid);
  write_text(config(), small_config());
}

std::vector<std::string> Workspace::train(const std::string& name,
                                          const std::vector<std::string>& sets) const {
  std::vector<std::string> arguments{"train", config(), "--set", "run.dir=" + run_dir(name)};
  for (const auto& set : sets) {
    arguments.emplace_back("--set");
    arguments.push_back(set);
  }
  return arguments;
}

std::string read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_text(const fs::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text;
}

std::vector<std::string> losses(const std::string& run_dir) {
  std::vector<std::string> all;
  std::ifstream in(fs::path(run_dir) / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    all.push_back(object.is_object() ? object["step"].dump() + ": " + object["loss"].dump()
                                     : "torn line");
  }
  return all;
}

std::size_t lines(const fs::path& file) {
  const std::string text = read_text(file);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::vector<std::string> checkpoints(const std::string& run_dir) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(fs::path(run_dir) / "checkpoints", none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step_") && name.find("corrupt") == std::string::npos)
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::map<std::string, std::string> final_state(const std::string& run_dir) {
  std::map<std::string, std::string> state;
  const auto names = checkpoints(run_dir);
  if (names.empty()) return state;
  const fs::path newest = fs::path(run_dir) / "checkpoints" / names.back();
  state["name"] = names.back();
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "tables.safetensors"}) {
    state[file] = read_text(newest / file);
  }
  return state;
}

bool wait_until(Process& process, const std::function<bool()>& ready) {
  while (!ready()) {
    if (!process.running()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace paceline::e2e
