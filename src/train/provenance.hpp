// Where a run comes from and what it was trained with: its id, the checkpoints that it grew from,
// the build and the machine. Saved with every checkpoint, so that a resume can say what it is.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/train_config.hpp"

namespace paceline::train {

// A checkpoint whose weights went on into this run.
struct Ancestor {
  std::string run;   // id; empty when it is not known
  std::string path;  // as it was then
  std::int64_t step = 0;
  std::string why;  // "resume" or "init_from"
  friend bool operator==(const Ancestor&, const Ancestor&) = default;
};

struct BuildInfo {
  std::string version;   // of the program
  std::string commit;    // where the build knows it
  std::string compiler;  // with its version
  std::string build_id;  // the linker's hash of the program; may be empty
  friend bool operator==(const BuildInfo&, const BuildInfo&) = default;
};

struct MachineInfo {
  std::string cpu;     // model name
  std::string onednn;  // version
  std::string isa;     // that oneDNN uses
  std::string device;  // engine_name()
  friend bool operator==(const MachineInfo&, const MachineInfo&) = default;
};

struct Provenance {
  std::string run_id;             // 32 hex digits, drawn at the first start
  std::int64_t starts = 0;        // processes that trained in it, this one included
  std::vector<Ancestor> lineage;  // oldest first; at most kMaxAncestors
  BuildInfo build;
  MachineInfo machine;

  static constexpr std::size_t kMaxAncestors = 64;
  // Leaves out the oldest resume when there are too many: beginnings from elsewhere stay longest.
  void add_ancestor(Ancestor ancestor);
};

// Of this process.
BuildInfo this_build(std::string version, std::string commit);
MachineInfo this_machine(std::string device);
std::string draw_run_id();

nlohmann::json to_json(const Provenance& provenance);
// Throws std::exception when it is something else: the caller names the file.
Provenance provenance_from_json(const nlohmann::json& state);

// Why a run that goes on may give other numbers than one that was never interrupted: keys that
// decide about results, another build, another machine. Empty: it is bit-identical.
std::vector<std::string> reasons_to_differ(const std::vector<KeyChange>& changes,
                                           const Provenance& saved, const Provenance& now);

}  // namespace paceline::train
