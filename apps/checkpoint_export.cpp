#include <fmt/format.h>

#include <cstdio>

#include "checkpoint_commands.hpp"
#include "train/export_weights.hpp"

namespace paceline::app {
namespace {

struct Arguments {
  std::string checkpoint, out;
  bool force = false, json = false;
};

Result<int> export_to(const Arguments& args) {
  const auto existing = args.force ? checkpoint::Existing::kReplace : checkpoint::Existing::kRefuse;
  PL_TRY(const auto exported, train::export_weights(args.checkpoint, args.out, existing));
  if (args.json) {
    print_json({{"file", exported.file.string()},
                {"checkpoint", exported.checkpoint.string()},
                {"run_id", exported.run},
                {"step", exported.step},
                {"config_fingerprint", hex_text(exported.config_fingerprint)},
                {"tensors", exported.tensors},
                {"bytes", exported.bytes}});
  } else {
    fmt::print("{}: {} tensors, {:.1f} MiB, the weights of {}\n", exported.file.string(),
               exported.tensors, static_cast<double>(exported.bytes) / 1048576.0,
               exported.checkpoint.string());
  }
  return 0;
}

}  // namespace

void add_checkpoint_export(CLI::App& checkpoint, Command& chosen) {
  auto args = std::make_shared<Arguments>();
  auto* sub = checkpoint.add_subcommand(
      "export", "Write the weights of one, tables included, as a single safetensors file");
  sub->add_option("CHECKPOINT", args->checkpoint, kCheckpointHelp)->required();
  sub->add_option("-o,--out", args->out, "file to write; its name ends in .safetensors")
      ->required();
  sub->add_flag("--force", args->force, "replace a file that is there");
  sub->add_flag("--json", args->json, "print JSON");
  sub->footer(
      "Every byte of the checkpoint is verified. The file appears whole or not at all. Its "
      "metadata\n"
      "hold the config of the run; train.init_from takes it too.");
  sub->callback([args, &chosen] { chosen = [args] { return export_to(*args); }; });
}

}  // namespace paceline::app
