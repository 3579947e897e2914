// The commands of the program: each parses its own arguments and wires rooms, nothing else.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace paceline::app {

// Exit codes: 0 done, 1 failed, 2 usage or config error, 130 stopped.
inline constexpr int kExitStopped = 130;

using Command = std::function<Result<int>()>;

// Each adds a subcommand to `app` and, when it is chosen, sets `chosen`.
void add_data(CLI::App& app, Command& chosen);
void add_train(CLI::App& app, Command& chosen);
void add_eval(CLI::App& app, Command& chosen);
void add_rank(CLI::App& app, Command& chosen);
void add_checkpoint(CLI::App& app, Command& chosen);
void add_doctor(CLI::App& app, Command& chosen);
void add_bench(CLI::App& app, Command& chosen);
void add_bench_step(CLI::App& bench, Command& chosen);

// Option --set of a command that reads a config. `overrides` must live as long as the command.
CLI::Option* add_overrides(CLI::App& command, std::vector<std::string>& overrides);
// Option --device, added after --set: it comes last and wins.
void add_device(CLI::App& command, std::vector<std::string>& overrides);

// Takes SIGINT and SIGTERM for the whole process while it lives: the first ends the process with
// 130 unless a StopOnSignal says what to do, the second ends it in any case. SIGUSR1 does nothing
// unless a SaveOnSignal is there. Create it before any thread.
class SignalWatcher {
 public:
  SignalWatcher();
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// While it lives, the first signal calls `on_stop` (from another thread) instead. One at a time.
class StopOnSignal {
 public:
  explicit StopOnSignal(std::function<void()> on_stop);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
};

// While it lives, SIGUSR1 calls `on_save` (from another thread). One at a time.
class SaveOnSignal {
 public:
  explicit SaveOnSignal(std::function<void()> on_save);
  ~SaveOnSignal();
  SaveOnSignal(const SaveOnSignal&) = delete;
  SaveOnSignal& operator=(const SaveOnSignal&) = delete;
};

}  // namespace paceline::app
