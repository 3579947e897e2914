#include <fmt/format.h>

#include <cstdio>

#include "checkpoint_commands.hpp"
#include "core/bytes.hpp"
#include "telemetry/progress.hpp"

namespace paceline::app {
namespace {

using nlohmann::ordered_json;

struct Shown {
  checkpoint::Info info;
  checkpoint::Description inside;
  train::RunState run;
};

ordered_json tensors_json(const std::vector<checkpoint::TensorInfo>& tensors) {
  auto all = ordered_json::array();
  for (const auto& t : tensors) {
    all.push_back({{"name", t.name}, {"dtype", name_of(t.dtype)}, {"shape", t.shape}});
  }
  return all;
}

ordered_json position_json(const train::RunState& run) {
  const auto& p = run.position;
  return {{"epoch", p.epoch},
          {"next_row", p.next_row},
          {"rows", p.rows},
          {"batches", p.batches},
          {"data_fingerprint", hex_text(p.fingerprint)},
          {"seed", p.seed},
          {"shuffle_window", p.shuffle_window},
          {"skipped_rows", p.skipped.bad_rows},
          {"skipped_blocks", p.skipped.bad_blocks}};
}

ordered_json shown_json(const Shown& s) {
  auto json = info_json(s.info);
  json["format_version"] = s.inside.format_version;
  json["state_version"] = s.inside.state.at("format_version");
  json["manifest_xxh3"] = hex_text(s.inside.id.manifest_xxh3);
  json["examples"] = s.run.counters.examples;
  json["tokens"] = s.run.counters.tokens;
  json["skipped_steps"] = s.run.counters.skipped_steps;
  json["position"] = position_json(s.run);
  json.update(provenance_json(s.run.provenance));
  auto best = ordered_json::object();
  for (const auto& [split, b] : s.run.best) {
    best[split] = {{"step", b.step}, {"metric", b.metric}, {"value", b.value}};
  }
  json["best"] = std::move(best);
  json["config_fingerprint"] = hex_text(train::config_fingerprint(s.run.config));
  auto config = ordered_json::object();
  for (const auto& [key, value] : s.run.config) config[key] = value;
  json["config"] = std::move(config);
  json["table_rows"] = s.inside.table_rows;
  json["held_rows"] = s.inside.held_rows;
  auto files = ordered_json::array();
  for (const auto& f : s.inside.files) {
    files.push_back({{"name", f.name}, {"bytes", f.bytes}, {"xxh3", hex_text(f.xxh3)}});
  }
  json["files"] = std::move(files);
  json["tensors"] = {{"model", tensors_json(s.inside.model)},
                     {"optimizer", tensors_json(s.inside.optimizer)},
                     {"tables", tensors_json(s.inside.tables)}};
  return json;
}

void print_run(const Shown& s) {
  const auto& p = s.run.provenance;
  const auto& at = s.run.position;
  fmt::print("step         {}, {} examples, {} tokens{}\n", s.run.counters.step,
             s.run.counters.examples, s.run.counters.tokens,
             s.run.counters.skipped_steps > 0
                 ? fmt::format(", {} steps skipped (not finite)", s.run.counters.skipped_steps)
                 : "");
  fmt::print("position     epoch {}, row {} of its order; {} rows, {} batches in all\n", at.epoch,
             at.next_row, at.rows, at.batches);
  fmt::print("data         fingerprint {}, seed {}\n", hex_text(at.fingerprint), at.seed);
  for (const auto& [split, b] : s.run.best) {
    fmt::print("best         {} {:.6f} of {} at step {}\n", b.metric, b.value, split, b.step);
  }
  fmt::print("config       fingerprint {}\n", hex_text(train::config_fingerprint(s.run.config)));
  fmt::print("format       manifest {}, state {}\n", s.inside.format_version,
             s.inside.state.at("format_version").dump());
  if (p.run_id.empty()) return;
  fmt::print("build        {}{}, {}\n", p.build.version,
             p.build.commit.empty() ? "" : " (" + p.build.commit + ")", p.build.compiler);
  fmt::print("machine      {}, {}, oneDNN {} for {}\n", p.machine.device, p.machine.cpu,
             p.machine.onednn, p.machine.isa);
  fmt::print("run          {}, started {} time{}\n", p.run_id, p.starts, p.starts == 1 ? "" : "s");
  for (const auto& line : lineage_lines(p)) fmt::print("             {}\n", line);
}

void print_tensors(const char* part, const std::vector<checkpoint::TensorInfo>& tensors) {
  for (const auto& t : tensors) {
    fmt::print("  {:<10} {} {} [{}]\n", part, t.name, name_of(t.dtype), fmt::join(t.shape, ", "));
  }
}

void print_shown(const Shown& s, bool tensors) {
  fmt::print("{}\n", s.info.path.string());
  fmt::print(
      "state        {}, {}, {} old\n", s.info.complete ? "complete" : "BROKEN: " + s.info.why,
      bytes_text(static_cast<std::int64_t>(s.info.bytes)), telemetry::duration_text(s.info.age_s));
  print_run(s);
  if (s.info.base) {
    fmt::print("tables       {} of {} rows, the others are in step {}\n", s.inside.held_rows,
               s.inside.table_rows, s.info.base->step);
  } else {
    fmt::print("tables       {} rows\n", s.inside.table_rows);
  }
  fmt::print("tensors      {} model, {} optimizer, {} tables\n", s.inside.model.size(),
             s.inside.optimizer.size(), s.inside.tables.size());
  if (tensors) {
    print_tensors("model", s.inside.model);
    print_tensors("optimizer", s.inside.optimizer);
    print_tensors("tables", s.inside.tables);
  }
  for (const auto& f : s.inside.files) {
    fmt::print("{:>14}  {}  {}\n", f.bytes, hex_text(f.xxh3), f.name);
  }
}

Result<int> show(const std::string& name, bool tensors, bool json) {
  PL_TRY(const auto path, train::find_checkpoint(name));
  Shown shown;
  PL_TRY(shown.info, checkpoint::look_at(path));
  PL_TRY(shown.inside, checkpoint::describe(path));
  PL_TRY(shown.run, train::state_from_json(shown.inside.state).context(path.string()));
  if (json) {
    print_json(shown_json(shown));
  } else {
    print_shown(shown, tensors);
  }
  return shown.info.complete ? 0 : 1;
}

}  // namespace

void add_checkpoint_show(CLI::App& checkpoint, Command& chosen) {
  struct Arguments {
    std::string name;
    bool tensors = false, json = false;
  };
  auto args = std::make_shared<Arguments>();
  auto* sub = checkpoint.add_subcommand(
      "show", "What one checkpoint holds: position, build, config, lineage, files, tensors");
  sub->add_option("CHECKPOINT", args->name, kCheckpointHelp)->required();
  sub->add_flag("--tensors", args->tensors, "list every tensor with its type and shape");
  sub->add_flag("--json", args->json, "print JSON, tensors and all config keys included");
  sub->footer("Manifest, state and headers are read, tensors are not (`verify` does).");
  sub->callback(
      [args, &chosen] { chosen = [args] { return show(args->name, args->tensors, args->json); }; });
}

}  // namespace paceline::app
