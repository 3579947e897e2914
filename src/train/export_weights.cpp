#include "train/export_weights.hpp"

#include <fmt/format.h>

#include <vector>

#include "core/config_text.hpp"
#include "train/checkpoint_tensors.hpp"
#include "train/run_checkpoints.hpp"

namespace paceline::train {
namespace fs = std::filesystem;
namespace {

constexpr const char* kEnding = ".safetensors";

checkpoint::Metadata metadata_of(const RunState& run) {
  const auto& build = run.provenance.build;
  return {{"format", "paceline-export"},
          {"format_version", "1"},
          {"config", config_text(run.config)},
          {"config_fingerprint", fmt::format("{:016x}", config_fingerprint(run.config))},
          {"run", run.provenance.run_id},
          {"step", std::to_string(run.counters.step)},
          {"version", build.version},
          {"commit", build.commit}};
}

}  // namespace

Result<Exported> export_weights(const std::string& name, const fs::path& file,
                                checkpoint::Existing existing) {
  if (!file.filename().string().ends_with(kEnding) || file.filename() == kEnding) {
    return Error(Code::kInvalidArgument,
                 fmt::format("found \"{}\" as the file to write, allowed: a name that ends in {}",
                             file.string(), kEnding));
  }
  // Before anything is read; the write looks again.
  PL_TRY_VOID(checkpoint::check_target(file, existing));
  PL_TRY(const auto path, find_checkpoint(name));
  PL_TRY(const auto read, read_tensors(path.string(), Take::kWeights));
  PL_CHECK(read.run.has_value(), "what find_checkpoint() found is a checkpoint");
  std::vector<checkpoint::TensorView> views;
  for (const auto& t : read.tensors) {
    views.push_back({t.name, t.dtype, t.shape, {t.bytes.data(), t.bytes.size_bytes()}});
  }
  PL_TRY(const auto bytes,
         checkpoint::write_whole_safetensors(file, views, metadata_of(*read.run), existing));
  return Exported{.checkpoint = read.path,
                  .file = file,
                  .run = read.run->provenance.run_id,
                  .step = read.run->counters.step,
                  .bytes = bytes,
                  .config_fingerprint = config_fingerprint(read.run->config),
                  .tensors = views.size()};
}

}  // namespace paceline::train
