// The reader of state.json: any text is the state of a run, or an error.
#include <string>

#include "checkpoint/json_text.hpp"
#include "fuzz/parquet_input.hpp"
#include "fuzz/target.hpp"
#include "model/model_config.hpp"
#include "train/run_state.hpp"

namespace {

using namespace paceline;

// A model whose weights the state goes with.
struct Model {
  model::ParameterLayout layout{{.width = 8, .layers = 1, .head_dim = 8, .ffn = 8},
                                fuzz::seed_schema()};
  train::ModelState weights{layout.size(), 1, 8};
};

Model& a_model() {
  static Model model;
  return model;
}

nlohmann::json written(const train::RunState& run) {
  auto& m = a_model();
  return train::to_content(run, m.weights, m.layout).state;
}

void check_counts(const train::RunState& run) {
  const auto& p = run.position;
  const auto& c = run.counters;
  PL_CHECK(p.epoch >= 0 && p.next_row >= 0 && p.rows >= 0 && p.batches >= 0 &&
               p.shuffle_window >= 0 && p.skipped_rows >= 0 && p.skipped_blocks >= 0,
           "no count of a position is below zero");
  PL_CHECK(c.step >= 0 && c.examples >= 0 && c.tokens >= 0 && c.skipped_steps >= 0 &&
               c.bad_in_a_row >= 0,
           "no count of a run is below zero");
  PL_CHECK(run.provenance.lineage.size() <= train::Provenance::kMaxAncestors,
           "a lineage has an end");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = checkpoint::parse_json(text);
  if (!json) return 0;
  auto& m = a_model();
  train::StateReceiver receiver(m.layout, m.weights, {});
  const auto received = receiver.state(*json, "state.json");
  const auto run = train::state_from_json(*json);
  PL_CHECK(run.ok() || !received.ok(), "what is no state is not received");
  if (!run) return 0;
  check_counts(*run);
  const auto state = written(*run);
  const auto parsed = checkpoint::parse_json(state.dump());
  PL_CHECK(parsed.ok(), "what is written is JSON");
  const auto again = train::state_from_json(*parsed);
  PL_CHECK(again.ok() && written(*again) == state, "a state reads back");
  return 0;
}
