#include <fmt/format.h>

#include <cstdio>

#include "checkpoint_commands.hpp"
#include "telemetry/progress.hpp"

namespace paceline::app {
namespace {

using nlohmann::ordered_json;

std::string state_text(const checkpoint::Info& info, const train::SeenRun& run, bool deep) {
  std::string text = info.complete ? (deep ? "every byte" : "complete") : "BROKEN: " + info.why;
  if (info.base) text += fmt::format(", tables differ from step {}", info.base->step);
  if (run.latest == info.step) text += ", latest";
  return text;
}

void print_table(const train::SeenRun& run, bool deep) {
  if (run.checkpoints.empty()) {
    fmt::print("{}: no checkpoints\n", run.dir.string());
  } else {
    fmt::print("{:>12}  {:>10}  {:>14}  {}\n", "step", "MiB", "age", deep ? "verified" : "state");
  }
  for (const auto& [info, state] : run.checkpoints) {
    fmt::print("{:>12}  {:>10.1f}  {:>14}  {}\n", info.step,
               static_cast<double>(info.bytes) / 1048576.0, telemetry::duration_text(info.age_s),
               state_text(info, run, deep));
  }
  for (const auto& path : run.set_aside) {
    fmt::print("set aside: {}\n", path.filename().string());
  }
}

// The newest tells most: lineage only grows.
void print_lineage(const train::SeenRun& run) {
  for (auto it = run.checkpoints.rbegin(); it != run.checkpoints.rend(); ++it) {
    if (!it->run) continue;
    const auto& p = it->run->provenance;
    if (p.run_id.empty()) return;
    fmt::print("run {}, started {} time{}\n", p.run_id, p.starts, p.starts == 1 ? "" : "s");
    for (const auto& line : lineage_lines(p)) fmt::print("  {}\n", line);
    return;
  }
}

ordered_json all_json(const train::SeenRun& run, bool deep) {
  auto checkpoints = ordered_json::array();
  for (const auto& [info, state] : run.checkpoints) {
    auto one = info_json(info);
    one["latest"] = run.latest == info.step;
    if (state) one.update(provenance_json(state->provenance));
    checkpoints.push_back(std::move(one));
  }
  auto set_aside = ordered_json::array();
  for (const auto& path : run.set_aside) set_aside.push_back(path.string());
  return {{"dir", run.dir.string()},
          {"verified", deep},
          {"checkpoints", std::move(checkpoints)},
          {"set_aside", std::move(set_aside)}};
}

Result<int> show(const std::string& name, bool deep, bool json) {
  PL_TRY(const auto run, train::see_run(name, deep));
  bool broken = false;
  for (const auto& one : run.checkpoints) broken = broken || !one.info.complete;
  if (json) {
    print_json(all_json(run, deep));
  } else {
    print_table(run, deep);
    if (!deep) print_lineage(run);
  }
  if (!deep) return 0;
  if (run.checkpoints.empty()) {
    return Error(Code::kNotFound, run.dir.string() + " holds no checkpoint to verify");
  }
  return broken ? 1 : 0;
}

void add(CLI::App& checkpoint, Command& chosen, const char* name, const char* what, bool deep) {
  struct Arguments {
    std::string run;
    bool json = false;
  };
  auto args = std::make_shared<Arguments>();
  auto* sub = checkpoint.add_subcommand(name, what);
  sub->add_option("RUN", args->run,
                  "run directory or its config file; RUN@STEP or a checkpoint's directory: that "
                  "one alone")
      ->required();
  sub->add_flag("--json", args->json, "print JSON");
  sub->callback([args, deep, &chosen] {
    chosen = [args, deep] { return show(args->run, deep, args->json); };
  });
}

}  // namespace

void add_checkpoint_list(CLI::App& checkpoint, Command& chosen) {
  add(checkpoint, chosen, "list",
      "Steps, sizes, ages, what the run grew from; complete or not and why (sizes are compared)",
      false);
}

void add_checkpoint_verify(CLI::App& checkpoint, Command& chosen) {
  add(checkpoint, chosen, "verify",
      "Read every byte and compare its hash; exit 1 when one is broken", true);
}

}  // namespace paceline::app
