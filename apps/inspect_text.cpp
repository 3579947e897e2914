#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <string_view>

#include "core/bytes.hpp"
#include "inspect_report.hpp"

namespace paceline::app {
namespace {

constexpr std::size_t kBar = 40;

double percent(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

// Names are data: control characters would draw on the terminal.
std::string clean(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return out;
}

// At most `width` bytes, the middle left out.
std::string shortened(std::string_view text, std::size_t width) {
  std::string out = clean(text);
  if (out.size() <= width) return out;
  const std::size_t tail = (width - 2) / 2;
  return out.substr(0, width - 2 - tail) + ".." + out.substr(out.size() - tail);
}

std::string joined(const std::set<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ","));
}

std::string codec_text(const std::set<std::string>& codecs) {
  if (codecs == std::set<std::string>{"uncompressed"}) return "none";
  return codecs.size() > 1 ? "mixed" : shortened(joined(codecs), 7);
}

// "1 file", "2 files".
std::string counted(std::int64_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

// Levels are always RLE and dictionaries PLAIN: neither says anything about the values.
std::string short_encodings(std::set<std::string> encodings) {
  if (encodings.size() > 1) encodings.erase("RLE");
  const bool dictionary =
      encodings.erase("RLE_DICTIONARY") + encodings.erase("PLAIN_DICTIONARY") > 0;
  std::set<std::string> names;
  for (const auto& name : encodings) {
    names.insert(name == "PLAIN"                 ? "plain"
                 : name == "DELTA_BINARY_PACKED" ? "delta"
                 : name == "BYTE_STREAM_SPLIT"   ? "split"
                                                 : name);
  }
  if (dictionary) names.insert("dictionary");
  if (dictionary && names.size() == 2) names.erase("plain");
  return joined(names);
}

void add_columns(const data::Inspection& found, std::string& out) {
  std::size_t name = 6;
  std::size_t type = 4;
  for (const auto& r : found.columns) {
    name = std::max(name, std::min<std::size_t>(r.column.name.size(), 26));
    type = std::max(type, std::min<std::size_t>(r.column.type.size(), 16));
  }
  out += fmt::format("\n  {:<{}}  {:<{}}  {:<7} {:<16} {:>9} {:>5} {:>9}\n", "column", name, "type",
                     type, "codec", "encodings", "size", "of", "nulls");
  bool lists = false;
  for (const auto& [c, files, read] : found.columns) {
    lists = lists || c.is_list();
    out += fmt::format("{} {:<{}}  {:<{}}  {:<7} {:<16} {:>9} {:>3.0f} % {:>9}", read ? '*' : ' ',
                       shortened(c.name, name), name, shortened(c.type, type), type,
                       codec_text(c.codecs), shortened(short_encodings(c.encodings), 16),
                       bytes_text(c.compressed_bytes),
                       percent(c.compressed_bytes, c.uncompressed_bytes),
                       c.nulls < 0 ? "?" : std::to_string(c.nulls));
    const bool some = files < found.files - found.refused_files;
    out += some ? fmt::format("  {}\n", counted(files, "file")) : "\n";
  }
  out += "  * read by the config; of: of the bytes before compression";
  out += lists ? "; nulls of lists: empty lists too\n" : "\n";
}

std::string bin_text(std::size_t bin) {
  if (bin < 2) return std::to_string(bin);
  const std::int64_t low = std::int64_t{1} << (bin - 1);
  return fmt::format("{}-{}", low, 2 * low - 1);
}

void add_lengths(const char* what, const data::LengthReport& r, std::string& out) {
  if (r.rows == 0) return;
  out += fmt::format("\n{} of a row: min {}, median {}, 90 % {}, 99 % {}, max {}, mean {:.1f}\n",
                     what, r.min, r.p50, r.p90, r.p99, r.max, r.mean());
  const std::int64_t most = *std::max_element(r.bins.begin(), r.bins.end());
  std::size_t first = 0;
  while (r.bins[first] == 0) ++first;
  for (std::size_t b = first; b < r.bins.size(); ++b) {
    const auto bar = static_cast<std::size_t>(percent(r.bins[b], most) * kBar / 100.0 + 0.5);
    out += fmt::format("  {:>15}  {:>12}  {:>5.1f} %{}{}\n", bin_text(b), r.bins[b],
                       percent(r.bins[b], r.rows), bar > 0 ? "  " : "", std::string(bar, '#'));
  }
}

void add_actions(const data::Inspection& found, const InspectedWith& with, std::string& out) {
  if (!with.has_labels) {
    out += "\nno column of actions: set data.actions_column; train needs one, rank does not\n";
  }
  if (found.actions.empty() || found.candidates.total == 0) return;
  out += fmt::format("\n  {:<24} {:>3}  {:>14}  {:>9}  {:>9}\n", "action", "bit", "candidates",
                     "of all", "of rows");
  for (const auto& a : found.actions) {
    out += fmt::format("  {:<24} {:>3}  {:>14}  {:>7.3f} %  {:>7.2f} %\n", shortened(a.name, 24),
                       a.bit, a.candidates, percent(a.candidates, found.candidates.total),
                       percent(a.rows, found.candidates.rows));
  }
  if (found.undeclared_bits != 0) {
    std::string bits;
    for (int b = 0; b < 64; ++b) {
      if ((found.undeclared_bits >> b & 1) != 0)
        bits += (bits.empty() ? "" : ", ") + std::to_string(b);
    }
    out += fmt::format("  bits that no action declares: {}\n", bits);
  }
}

// Seconds as UTC where they are a date of this century or the last.
std::string time_text(std::int64_t seconds) {
  constexpr std::int64_t kLatest = 4'102'444'800;  // the year 2100
  if (seconds < 0 || seconds >= kLatest) return std::to_string(seconds);
  const std::time_t t = seconds;
  std::tm utc{};
  gmtime_r(&t, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &utc);
  return text;
}

void add_facts(const data::Inspection& found, const InspectedWith& with, std::string& out) {
  out += fmt::format("\nusers: {}{} in {} rows\n", found.users_exact ? "" : "about ", found.users,
                     found.history.rows);
  if (found.has_time) {
    out += fmt::format("requests: {} to {}\n", time_text(found.first_time),
                       time_text(found.last_time));
  }
  if (const std::string cuts = features::cuts_text(found.cuts); !cuts.empty()) {
    out += fmt::format("batches: {}\n", cuts);
  }
  out += fmt::format(
      "memory: up to {} for a decoded row group; training reckons with {} of up to {}\n"
      "  (data.shuffle_window = {}) and {} of {}: {} in all\n",
      bytes_text(found.largest_block_bytes), counted(found.memory.block_slots, "row group"),
      bytes_text(found.memory.block_bytes), with.shuffle_window,
      found.memory.batch_buffers == 1 ? "1 batch"
                                      : fmt::format("{} batches", found.memory.batch_buffers),
      bytes_text(found.memory.batch_bytes), bytes_text(found.memory.total()));
  const double s = std::max(found.seconds, 1e-9);
  const double r = std::max(found.read_seconds, 1e-9);
  const auto rows = static_cast<double>(found.rows_read);
  out += fmt::format(
      "read: {:.0f} rows/s, {}/s by {}, with all checks; decoding alone {:.0f} rows/s a "
      "thread\n",
      rows / s, bytes_text(static_cast<std::int64_t>(static_cast<double>(found.bytes_read) / s)),
      counted(with.threads, "thread"), rows / r);
}

std::string refusal_text(const data::Refusal& r) {
  std::string place = r.file;
  if (r.row_group >= 0) place += fmt::format(", row group {}", r.row_group);
  // Most reasons begin with the place already.
  std::string why = r.why;
  if (why.starts_with(place + ": ")) {
    why = why.substr(place.size() + 2);
  } else if (why.starts_with(place)) {
    return clean(why);
  }
  if (r.row >= 0 && why.find(fmt::format("row {} ", r.row)) == std::string::npos) {
    place += fmt::format(", row {}", r.row);
  }
  return fmt::format("{}: {}", clean(place), clean(why));
}

void add_reason(const data::ReasonReport& r, std::string& out) {
  std::string amount;
  const auto add = [&](std::int64_t n, std::string_view what) {
    if (n > 0) amount += (amount.empty() ? "" : ", ") + counted(n, what);
  };
  add(r.files, "file");
  add(r.row_groups, "row group");
  add(r.rows, "row");
  out +=
      fmt::format("  {}{}: {}\n    {}{}\n",
                  r.kind.column.empty() ? "" : "column " + clean(r.kind.column) + ": ", r.kind.what,
                  amount, r.rows + r.files > 1 ? "first: " : "", refusal_text(r.first));
}

void add_refused(const data::Inspection& found, std::string& out) {
  if (!found.anything_refused()) {
    out += fmt::format("\ntraining would refuse none of the {} read\n",
                       counted(found.rows_read, "row"));
    return;
  }
  out += "\n";
  if (found.refused_files > 0) {
    out += fmt::format(
        "training would refuse the whole data set at the start: {} of {} cannot be used\n",
        counted(found.refused_files, "file"), found.files);
  }
  if (found.refused_rows + found.refused_blocks > 0) {
    out += fmt::format("training would refuse {} of {} read{}, and end at the first\n",
                       found.refused_rows, counted(found.rows_read, "row"),
                       found.refused_blocks > 0
                           ? fmt::format(" ({})", counted(found.refused_blocks, "whole row group"))
                           : "");
    out += "  data.skip_bad_rows and data.skip_bad_blocks let it leave bad data out\n";
  }
  out += "reasons:\n";
  for (const auto& reason : found.by_reason) add_reason(reason, out);
  if (found.refusals.size() <= found.by_reason.size()) return;
  out += "the first of all:\n";
  for (const auto& r : found.refusals) out += fmt::format("  {}\n", refusal_text(r));
}

}  // namespace

std::string inspection_text(const data::Inspection& found, const InspectedWith& with) {
  std::string out = fmt::format("{} ({})\n{}, {}, {} in {}", clean(with.target), with.config,
                                counted(found.files, "file"), bytes_text(found.file_bytes),
                                counted(found.rows, "row"), counted(found.blocks, "row group"));
  if (found.blocks > 0) {
    out += fmt::format(" of {} to {} rows (median {})", found.min_block_rows, found.max_block_rows,
                       found.median_block_rows);
  }
  out += "\n";
  if (!with.splits.empty()) {
    out += "all of these are read together; name one of them to look at it alone:\n";
    for (const auto& split : with.splits) out += fmt::format("  {}\n", clean(split));
  }
  add_columns(found, out);
  if (found.rows_read < found.rows) {
    out += fmt::format("\n{} of {} rows were read\n", found.rows_read, found.rows);
  }
  add_lengths("history", found.history, out);
  add_lengths("candidates", found.candidates, out);
  add_actions(found, with, out);
  if (found.rows_read > 0) add_facts(found, with, out);
  add_refused(found, out);
  return out;
}

}  // namespace paceline::app
