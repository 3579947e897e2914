#include "checkpoint_commands.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace paceline::app {

std::string hex_text(std::uint64_t value) { return fmt::format("{:016x}", value); }

nlohmann::ordered_json info_json(const checkpoint::Info& info) {
  return {{"step", info.step},
          {"path", info.path.string()},
          {"bytes", info.bytes},
          {"age_s", info.age_s},
          {"complete", info.complete},
          {"why", info.why},
          {"base_step",
           info.base ? nlohmann::ordered_json(info.base->step) : nlohmann::ordered_json()}};
}

nlohmann::ordered_json provenance_json(const train::Provenance& p) {
  auto lineage = nlohmann::ordered_json::array();
  for (const auto& a : p.lineage) {
    lineage.push_back({{"why", a.why}, {"run", a.run}, {"step", a.step}, {"path", a.path}});
  }
  return {{"run_id", p.run_id},
          {"starts", p.starts},
          {"lineage", std::move(lineage)},
          {"build",
           {{"version", p.build.version},
            {"commit", p.build.commit},
            {"compiler", p.build.compiler},
            {"build_id", p.build.build_id}}},
          {"machine",
           {{"cpu", p.machine.cpu},
            {"onednn", p.machine.onednn},
            {"isa", p.machine.isa},
            {"device", p.machine.device}}}};
}

std::vector<std::string> lineage_lines(const train::Provenance& p) {
  std::vector<std::string> lines;
  for (const auto& a : p.lineage) {
    if (a.why == "init_from") {
      lines.push_back(fmt::format("began with the weights of {} (step {}{})", a.path, a.step,
                                  a.run.empty() ? "" : " of run " + a.run));
    } else {
      lines.push_back(fmt::format("went on from step {} ({})", a.step, a.path));
    }
  }
  return lines;
}

void print_json(const nlohmann::ordered_json& json) {
  // Paths are bytes: one that is not UTF-8 must not end the program.
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void add_checkpoint(CLI::App& app, Command& chosen) {
  auto* command = app.add_subcommand(
      "checkpoint", "Look at the checkpoints of a run, remove old ones, export weights");
  command->require_subcommand(1);
  add_checkpoint_list(*command, chosen);
  add_checkpoint_show(*command, chosen);
  add_checkpoint_verify(*command, chosen);
  add_checkpoint_diff(*command, chosen);
  add_checkpoint_prune(*command, chosen);
  add_checkpoint_export(*command, chosen);
}

}  // namespace paceline::app
