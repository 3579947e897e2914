#include "checkpoint/checkpoint.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "commands.hpp"
#include "telemetry/progress.hpp"
#include "train/loaded_run.hpp"

namespace paceline::app {
namespace {

Result<int> show(const std::string& target, bool deep, bool json) {
  PL_TRY(const auto config, train::read_config(target, {}));
  PL_TRY(const auto infos, checkpoint::list(config.checkpoint.dir, deep));
  bool broken = false;
  for (const auto& info : infos) broken = broken || !info.complete;
  if (json) {
    auto all = nlohmann::json::array();
    for (const auto& i : infos) {
      all.push_back({{"step", i.step},
                     {"path", i.path.string()},
                     {"bytes", i.bytes},
                     {"age_s", i.age_s},
                     {"complete", i.complete},
                     {"base_step", i.base ? nlohmann::json(i.base->step) : nlohmann::json()},
                     {"why", i.why}});
    }
    fmt::print("{}\n", all.dump(2));
  } else if (infos.empty()) {
    fmt::print("{}: no checkpoints\n", config.checkpoint.dir);
  } else {
    fmt::print("{:>12}  {:>10}  {:>14}  {}\n", "step", "MiB", "age", deep ? "verified" : "state");
    for (const auto& i : infos) {
      fmt::print("{:>12}  {:>10.1f}  {:>14}  {}\n", i.step,
                 static_cast<double>(i.bytes) / 1048576.0, telemetry::duration_text(i.age_s),
                 (i.complete ? (deep ? "every byte" : "complete") : "BROKEN: " + i.why) +
                     (i.base ? fmt::format(", tables differ from step {}", i.base->step) : ""));
    }
  }
  if (!deep) return 0;
  if (infos.empty())
    return Error(Code::kNotFound, config.checkpoint.dir + " holds no checkpoint to verify");
  return broken ? 1 : 0;
}

}  // namespace

void add_checkpoint(CLI::App& app, Command& chosen) {
  auto* command = app.add_subcommand("checkpoint", "Look at the checkpoints of a run");
  command->require_subcommand(1);
  const auto add = [&](const char* name, const char* what, bool deep) {
    struct Arguments {
      std::string run;
      bool json = false;
    };
    auto args = std::make_shared<Arguments>();
    auto* sub = command->add_subcommand(name, what);
    sub->add_option("RUN", args->run, "run directory, or its config file")->required();
    sub->add_flag("--json", args->json, "print JSON");
    sub->callback([args, deep, &chosen] {
      chosen = [args, deep] { return show(args->run, deep, args->json); };
    });
  };
  add("list", "Steps, sizes, ages; complete or not and why (sizes are compared)", false);
  add("verify", "Read every byte and compare its hash; exit 1 when one is broken", true);
}

}  // namespace paceline::app
