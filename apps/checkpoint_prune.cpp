#include <fmt/format.h>

#include <cstdio>

#include "checkpoint_commands.hpp"
#include "train/run_pruning.hpp"

namespace paceline::app {
namespace {

using nlohmann::ordered_json;

struct Arguments {
  std::string run;
  train::PruneOptions options;
  bool json = false;
};

ordered_json all_json(const train::PrunedRun& pruned, bool dry_run) {
  auto removed = ordered_json::array();
  for (const auto& info : pruned.plan.removed) removed.push_back(info_json(info));
  auto kept = ordered_json::array();
  for (const auto& [info, why] : pruned.plan.kept) {
    auto one = info_json(info);
    one["kept_because"] = why;
    kept.push_back(std::move(one));
  }
  auto leftovers = ordered_json::array();
  for (const auto& path : pruned.plan.leftovers) leftovers.push_back(path.string());
  return {{"dir", pruned.dir.string()},
          {"dry_run", dry_run},
          {"keep_last", pruned.retention.keep_last},
          {"keep_every", pruned.retention.keep_every},
          {"removed", std::move(removed)},
          {"kept", std::move(kept)},
          {"leftovers", std::move(leftovers)},
          {"bytes", pruned.bytes}};
}

void print_text(const train::PrunedRun& pruned, bool dry_run) {
  const auto& plan = pruned.plan;
  const char* const removed = dry_run ? "would remove" : "removed";
  for (const auto& [info, why] : plan.kept) fmt::print("kept step {}: {}\n", info.step, why);
  for (const auto& info : plan.removed) fmt::print("{} step {}\n", removed, info.step);
  for (const auto& path : plan.leftovers) {
    fmt::print("{} what an interrupted save left: {}\n", removed, path.filename().string());
  }
  fmt::print("{}: {} {} checkpoints and {} leftovers, {:.1f} MiB\n", pruned.dir.string(), removed,
             plan.removed.size(), plan.leftovers.size(),
             static_cast<double>(pruned.bytes) / 1048576.0);
}

Result<int> prune(const Arguments& args) {
  PL_TRY(const auto pruned, train::prune_run(args.run, args.options));
  if (args.json) {
    print_json(all_json(pruned, args.options.dry_run));
  } else {
    print_text(pruned, args.options.dry_run);
  }
  return 0;
}

}  // namespace

void add_checkpoint_prune(CLI::App& checkpoint, Command& chosen) {
  auto args = std::make_shared<Arguments>();
  auto* sub = checkpoint.add_subcommand(
      "prune", "Remove checkpoints that the run's keep_last and keep_every do not keep");
  sub->add_option("RUN", args->run, "run directory or its config file")->required();
  sub->add_option("--keep-last", args->options.keep_last,
                  "newest complete ones that stay; default: checkpoint.keep_last of the run")
      ->check(CLI::Range(1, 1000000));
  sub->add_option("--keep-every", args->options.keep_every,
                  "of each multiple of so many steps the first one stays for good, 0: none; "
                  "default: checkpoint.keep_every of the run")
      ->check(CLI::NonNegativeNumber);
  sub->add_flag("--dry-run", args->options.dry_run,
                "say what would be removed, and remove nothing");
  sub->add_flag("--json", args->json, "print JSON");
  sub->footer(
      "Refused while the run trains. What `latest` names, the newest whose last steps were "
      "finite,\n"
      "bases of differences, and what is broken or was set aside stay in any case. The newest one\n"
      "is read and verified first; while it is broken nothing is removed.");
  sub->callback([args, &chosen] { chosen = [args] { return prune(*args); }; });
}

}  // namespace paceline::app
