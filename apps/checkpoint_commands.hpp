// Subcommands of `paceline checkpoint`, and what they share in printing.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.hpp"
#include "train/provenance.hpp"
#include "train/run_checkpoints.hpp"

namespace paceline::app {

// What a checkpoint is called on the command line.
inline constexpr const char* kCheckpointHelp =
    "run directory or config file (its newest complete checkpoint), RUN@STEP, or a checkpoint's "
    "directory";

// Each adds a subcommand to `checkpoint` and, when it is chosen, sets `chosen`.
void add_checkpoint_list(CLI::App& checkpoint, Command& chosen);
void add_checkpoint_verify(CLI::App& checkpoint, Command& chosen);
void add_checkpoint_show(CLI::App& checkpoint, Command& chosen);
void add_checkpoint_diff(CLI::App& checkpoint, Command& chosen);
void add_checkpoint_prune(CLI::App& checkpoint, Command& chosen);
void add_checkpoint_export(CLI::App& checkpoint, Command& chosen);

std::string hex_text(std::uint64_t value);
// Step, path, bytes, age_s, complete, why, base_step.
nlohmann::ordered_json info_json(const checkpoint::Info& info);
// run_id, starts, lineage, build, machine.
nlohmann::ordered_json provenance_json(const train::Provenance& provenance);
// One line each: what the run grew from, oldest first.
std::vector<std::string> lineage_lines(const train::Provenance& provenance);
void print_json(const nlohmann::ordered_json& json);

}  // namespace paceline::app
