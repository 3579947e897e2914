// Subcommands of `paceline data`, one file each.
#pragma once

#include "commands.hpp"

namespace paceline::app {

// Each adds a subcommand to `data` and, when it is chosen, sets `chosen`.
void add_data_synth(CLI::App& data, Command& chosen);
void add_data_import(CLI::App& data, Command& chosen);
void add_data_inspect(CLI::App& data, Command& chosen);

}  // namespace paceline::app
