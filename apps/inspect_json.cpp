#include <utility>

#include "inspect_report.hpp"

namespace paceline::app {
namespace {

using nlohmann::ordered_json;

ordered_json lengths(const data::LengthReport& r) {
  return {{"min", r.min}, {"p50", r.p50},     {"p90", r.p90},       {"p99", r.p99},
          {"max", r.max}, {"mean", r.mean()}, {"log2_bins", r.bins}};
}

ordered_json columns(const data::Inspection& found) {
  auto all = ordered_json::array();
  for (const auto& [c, files, read] : found.columns) {
    ordered_json column{{"name", c.name},
                        {"type", c.type},
                        {"read", read},
                        {"files", files},
                        {"values", c.values},
                        {"nulls", c.nulls < 0 ? ordered_json() : ordered_json(c.nulls)},
                        {"compressed_bytes", c.compressed_bytes},
                        {"uncompressed_bytes", c.uncompressed_bytes},
                        {"codecs", c.codecs},
                        {"encodings", c.encodings}};
    if (c.has_range) {
      column["min"] = c.min;
      column["max"] = c.max;
    }
    all.push_back(std::move(column));
  }
  return all;
}

ordered_json refused(const data::Inspection& found) {
  const auto one = [](const data::Refusal& r) -> ordered_json {
    const auto place = [](std::int64_t n) { return n < 0 ? ordered_json() : ordered_json(n); };
    return {
        {"file", r.file}, {"row_group", place(r.row_group)}, {"row", place(r.row)}, {"why", r.why}};
  };
  auto first = ordered_json::array();
  for (const auto& r : found.refusals) first.push_back(one(r));
  auto reasons = ordered_json::array();
  for (const auto& r : found.by_reason) {
    reasons.push_back(
        {{"kind", r.kind.what},
         {"column", r.kind.column.empty() ? ordered_json() : ordered_json(r.kind.column)},
         {"rows", r.rows},
         {"row_groups", r.row_groups},
         {"files", r.files},
         {"first", one(r.first)}});
  }
  return {{"whole_data_set", found.refused_files > 0}, {"rows", found.refused_rows},
          {"row_groups", found.refused_blocks},        {"files", found.refused_files},
          {"by_reason", std::move(reasons)},           {"first", std::move(first)}};
}

ordered_json actions(const data::Inspection& found) {
  auto all = ordered_json::array();
  const auto share = [](std::int64_t part, std::int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  for (const auto& a : found.actions) {
    all.push_back({{"name", a.name},
                   {"bit", a.bit},
                   {"candidates", a.candidates},
                   {"rate", share(a.candidates, found.candidates.total)},
                   {"rows", a.rows}});
  }
  return all;
}

}  // namespace

ordered_json inspection_json(const data::Inspection& found, const InspectedWith& with) {
  ordered_json out{{"path", with.target},
                   {"config", with.config},
                   {"splits", with.splits},
                   {"stopped", found.stopped},
                   {"files", found.files},
                   {"file_bytes", found.file_bytes},
                   {"rows", found.rows},
                   {"row_groups",
                    {{"count", found.blocks},
                     {"min_rows", found.min_block_rows},
                     {"median_rows", found.median_block_rows},
                     {"max_rows", found.max_block_rows},
                     {"max_decoded_bytes", found.max_block_bytes},
                     {"largest_decoded_bytes", found.largest_block_bytes}}},
                   {"shuffle_window", with.shuffle_window},
                   {"window_bytes", found.memory.block_slots * found.memory.block_bytes},
                   {"memory",
                    {{"block_slots", found.memory.block_slots},
                     {"block_bytes", found.memory.block_bytes},
                     {"batches", found.memory.batch_buffers},
                     {"batch_bytes", found.memory.batch_bytes},
                     {"total_bytes", found.memory.total()}}},
                   {"columns", columns(found)},
                   {"rows_read", found.rows_read},
                   {"history_length", lengths(found.history)},
                   {"candidates", lengths(found.candidates)},
                   {"actions", actions(found)},
                   {"undeclared_action_bits", found.undeclared_bits},
                   {"users", {{"distinct", found.users}, {"exact", found.users_exact}}},
                   {"cuts",
                    {{"history_events", found.cuts.history_events_cut},
                     {"candidates", found.cuts.candidates_cut},
                     {"unknown_actions", found.cuts.unknown_actions},
                     {"unknown_categories", found.cuts.unknown_categories},
                     {"request_before_history", found.cuts.request_before_history}}},
                   {"refused", refused(found)},
                   {"threads", with.threads},
                   {"seconds", found.seconds},
                   {"read_seconds", found.read_seconds},
                   {"bytes_read", found.bytes_read}};
  if (found.has_time)
    out["request_time"] = {{"first", found.first_time}, {"last", found.last_time}};
  return out;
}

}  // namespace paceline::app
