#include "data_commands.hpp"

namespace paceline::app {

void add_data(CLI::App& app, Command& chosen) {
  auto* data = app.add_subcommand("data", "Make data sets of impressions and look at them");
  data->require_subcommand(1);
  add_data_synth(*data, chosen);
  add_data_import(*data, chosen);
  add_data_inspect(*data, chosen);
}

}  // namespace paceline::app
