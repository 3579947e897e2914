// The options that change a config for one call.
#include "commands.hpp"

namespace paceline::app {

CLI::Option* add_overrides(CLI::App& command, std::vector<std::string>& overrides) {
  return command
      .add_option("--set", overrides, "section.key=value, overrides the config; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->take_all();
}

void add_device(CLI::App& command, std::vector<std::string>& overrides) {
  command
      .add_option_function<std::string>(
          "--device",
          [&overrides](const std::string& device) {
            overrides.push_back("train.device=" + device);
          },
          "cpu, cuda, or auto (the GPU where one can be used): short for --set train.device=...")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->type_name("DEVICE");
}

}  // namespace paceline::app
