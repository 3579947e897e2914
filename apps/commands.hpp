// The commands of the program: each parses its own arguments and wires rooms, nothing else.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <string>

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

// Calls `on_stop` (from another thread) at the first SIGINT or SIGTERM while it lives; the second
// signal ends the process at once with 130.
class StopOnSignal {
 public:
  explicit StopOnSignal(std::function<void()> on_stop);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

 private:
  struct Impl;
  Impl* impl_;
};

// Blocks the stop signals in this thread and all that it starts. Call first in main.
void block_stop_signals();

}  // namespace paceline::app
