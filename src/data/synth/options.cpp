#include "data/synth/options.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace paceline::data::synth {
namespace {

constexpr std::int64_t kMaxLength = 1 << 16;

Error bad(const std::string& option, const std::string& found, const std::string& allowed) {
  return Error(Code::kInvalidArgument,
               fmt::format("{}: found {}, allowed: {}", option, found, allowed));
}

template <typename T>
bool parse_whole(std::string_view text, T& value) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size();
}

std::vector<std::string_view> pieces(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(separator, start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

bool parse_range(std::string_view text, LengthRange& range) {
  const auto share = pieces(text, ':');
  if (share.size() > 2) return false;
  if (share.size() == 2 && !parse_whole(share[1], range.share)) return false;
  const auto ends = pieces(share[0], '-');
  if (ends.size() > 2 || !parse_whole(ends[0], range.min)) return false;
  range.max = range.min;
  return ends.size() == 1 || parse_whole(ends[1], range.max);
}

Result<void> check_count(const char* option, std::int64_t value, std::int64_t min,
                         std::int64_t max) {
  if (value >= min && value <= max) return {};
  return bad(option, std::to_string(value), fmt::format("{} to {}", min, max));
}

Result<void> check_range(const char* option, const LengthRange& r, std::int64_t min) {
  const bool share = std::isfinite(r.share) && r.share >= 0.0 && r.share <= 1e9;
  if (r.min >= min && r.min <= r.max && r.max <= kMaxLength && share) return {};
  return bad(
      option, fmt::format("{}-{}:{}", r.min, r.max, r.share),
      fmt::format("MIN-MAX[:SHARE] with {} <= MIN <= MAX <= {} and SHARE >= 0", min, kMaxLength));
}

}  // namespace

Options::Options() {
  for (std::size_t a = 0; a < rates.size(); ++a) rates[a] = kActionInfos[a].base;
}

double Options::mean_history() const {
  double sum = 0.0, shares = 0.0;
  for (const auto& r : history) {
    sum += r.share * static_cast<double>(r.min + r.max) / 2.0;
    shares += r.share;
  }
  return shares > 0.0 ? sum / shares : 0.0;
}

double Options::mean_candidates() const {
  return static_cast<double>(candidates.min + candidates.max) / 2.0;
}

Result<void> check(const Options& o) {
  PL_TRY_VOID(check_count("--rows", o.rows, 0, std::int64_t{1} << 40));
  PL_TRY_VOID(check_count("--users", o.users, 1, std::int64_t{1} << 40));
  PL_TRY_VOID(check_count("--authors", o.authors, 1, 10'000'000));
  PL_TRY_VOID(check_count("--items", o.items, 1, 20'000'000));
  PL_TRY_VOID(check_count("--topics", o.topics, 2, 63));
  PL_TRY_VOID(check_count("--rows-per-file", o.rows_per_file, 1, std::int64_t{1} << 31));
  PL_TRY_VOID(check_count("--row-group-rows", o.row_group_rows, 1, 1 << 20));
  PL_TRY_VOID(check_count("--threads", o.threads, 0, 1024));
  if (o.history.empty()) return bad("--history", "nothing", "MIN-MAX[:SHARE],...");
  double shares = 0.0;
  for (const auto& r : o.history) {
    PL_TRY_VOID(check_range("--history", r, 0));
    shares += r.share;
  }
  if (!(shares > 0.0)) return bad("--history", "shares of 0", "at least one share above 0");
  PL_TRY_VOID(check_range("--candidates", o.candidates, 1));
  if (o.candidates.max > o.items) {
    return bad("--candidates", std::to_string(o.candidates.max),
               fmt::format("at most the {} items, as a row's candidates are distinct", o.items));
  }
  for (std::size_t a = 0; a < o.rates.size(); ++a) {
    if (!(o.rates[a] >= 0.0 && o.rates[a] <= 1.0)) {
      return bad("--rate", fmt::format("{}={}", kActionInfos[a].name, o.rates[a]),
                 "base rates of 0 to 1, after --rates-scale");
    }
  }
  double sum = 0.0;
  for (const double s : o.split) {
    if (!(s >= 0.0 && s <= 1.0)) return bad("--split", fmt::format("{}", s), "shares of 0 to 1");
    sum += s;
  }
  if (std::abs(sum - 1.0) > 1e-9) {
    return bad("--split", fmt::format("shares with the sum {}", sum), "shares with the sum 1");
  }
  const auto& c = o.compression;
  if (c != "zstd" && c != "snappy" && c != "lz4" && c != "gzip" && c != "none") {
    return bad("--compression", c, "zstd, snappy, lz4, gzip, none");
  }
  return {};
}

Result<std::vector<LengthRange>> parse_lengths(const std::string& option, const std::string& text) {
  std::vector<LengthRange> ranges;
  for (const auto part : pieces(text, ',')) {
    LengthRange range;
    if (!parse_range(part, range)) {
      return bad(option, fmt::format("\"{}\"", part), "MIN-MAX, MIN-MAX:SHARE or a number");
    }
    ranges.push_back(range);
  }
  return ranges;
}

Result<void> parse_rate(const std::string& text, Options& options) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  double value = 0.0;
  if (equals != std::string::npos &&
      parse_whole(std::string_view(text).substr(equals + 1), value)) {
    for (std::size_t a = 0; a < options.rates.size(); ++a) {
      if (name != kActionInfos[a].name) continue;
      options.rates[a] = value;
      return {};
    }
  }
  std::string names;
  for (std::size_t a = 0; a < options.rates.size(); ++a) {
    names += std::string(a > 0 ? ", " : "") + kActionInfos[a].name;
  }
  return bad("--rate", fmt::format("\"{}\"", text), "ACTION=NUMBER with one of " + names);
}

Result<void> parse_split(const std::string& text, Options& options) {
  if (text == "none") {
    options.one_folder = true;
    return {};
  }
  const auto parts = pieces(text, ',');
  bool good = parts.size() == options.split.size();
  for (std::size_t i = 0; good && i < parts.size(); ++i)
    good = parse_whole(parts[i], options.split[i]);
  if (good) return {};
  return bad("--split", fmt::format("\"{}\"", text),
             "TRAIN,VALID,TEST (shares, e.g. 0.8,0.1,0.1) or none");
}

}  // namespace paceline::data::synth
