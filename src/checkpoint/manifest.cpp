#include "checkpoint/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "checkpoint/json_text.hpp"

namespace paceline::checkpoint {
namespace {

constexpr std::string_view kFormat = "paceline-checkpoint";
constexpr std::string_view kHashKey = "\"xxh3\": \"";
constexpr std::size_t kHashDigits = 16;

// Where the digits of the last hash, the manifest's own, begin; npos when they are not there.
std::size_t own_digits(std::string_view text) {
  const auto key = text.rfind(kHashKey);
  if (key == std::string_view::npos) return key;
  const auto begin = key + kHashKey.size();
  return text.size() - begin < kHashDigits ? std::string_view::npos : begin;
}

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

// Exactly 16 lower-case digits.
std::optional<std::uint64_t> from_hex(const std::string& text) {
  if (text.size() != kHashDigits) return {};
  std::uint64_t value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) return {};
    value = value << 4 | static_cast<std::uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

std::string text_with(const Manifest& manifest, std::uint64_t own_bytes) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  const auto add = [&](std::string_view name, std::uint64_t bytes, std::uint64_t xxh3) {
    files.push_back({{"name", name}, {"bytes", bytes}, {"xxh3", hex(xxh3)}});
  };
  for (const auto& f : manifest.files) add(f.name, f.bytes, f.xxh3);
  add(kManifestName, own_bytes, 0);
  nlohmann::ordered_json json = {
      {"format", kFormat}, {"version", kManifestVersion}, {"step", manifest.step}};
  if (manifest.base) {
    json["base"] = {{"step", manifest.base->step}, {"xxh3", hex(manifest.base->manifest_xxh3)}};
  }
  json["files"] = std::move(files);
  return json.dump(2) + "\n";
}

Result<FileRecord> parse_record(const nlohmann::json& j) {
  const auto wrong = Error(Code::kCorruptData, "an entry of files is not {name, bytes, xxh3}");
  if (!j.is_object() || !j.contains("name") || !j.contains("bytes") || !j.contains("xxh3") ||
      !j.at("name").is_string() || !j.at("bytes").is_number_unsigned() ||
      !j.at("xxh3").is_string()) {
    return wrong;
  }
  FileRecord record{j.at("name").get<std::string>(), j.at("bytes").get<std::uint64_t>(), 0};
  const auto hash = from_hex(j.at("xxh3").get<std::string>());
  if (!hash) return wrong;
  record.xxh3 = *hash;
  return record;
}

Result<Base> parse_base(const nlohmann::json& j, std::int64_t step) {
  const auto wrong = [](std::string_view what) {
    return Error(Code::kCorruptData, fmt::format("base {}", what));
  };
  if (!j.is_object() || !j.contains("step") || !j.contains("xxh3") ||
      !j.at("step").is_number_integer() || !j.at("xxh3").is_string()) {
    return wrong("is not {step, xxh3}");
  }
  const auto hash = from_hex(j.at("xxh3").get<std::string>());
  const auto base_step = j.at("step").get<std::int64_t>();
  if (!hash) return wrong("has no hash of 16 digits");
  if (base_step < 0 || base_step >= step) {
    return wrong(fmt::format("is of step {}, which is not before step {}", base_step, step));
  }
  return Base{base_step, *hash};
}

// How many table files there are; absent for any other set of files than that of a checkpoint.
std::optional<int> table_count(const Manifest& manifest, bool parts_allowed) {
  std::unordered_set<std::string_view> names;
  for (const auto& f : manifest.files) names.insert(f.name);
  constexpr std::string_view kOthers[] = {kModelName, kOptimizerName, kStateName};
  const auto all_there = [&](std::string_view n) { return names.contains(n); };
  if (!std::all_of(std::begin(kOthers), std::end(kOthers), all_there)) return {};
  if (names.size() != manifest.files.size() || names.size() <= std::size(kOthers)) return {};
  const std::size_t count = names.size() - std::size(kOthers);
  if (count > static_cast<std::size_t>(parts_allowed ? kMaxTableFiles : 1)) return {};
  const int n = static_cast<int>(count);
  for (int i = 0; i < n; ++i) {
    if (!names.contains(table_file_name(i, n))) return {};
  }
  return n;
}

Result<void> parse_files(const nlohmann::json& files, std::uint64_t own_bytes, bool parts_allowed,
                         Manifest& manifest) {
  const auto corrupt = [](std::string text) { return Error(Code::kCorruptData, std::move(text)); };
  if (!files.is_array() || files.empty()) return corrupt("files is not a list");
  for (const auto& entry : files) {
    PL_TRY(auto record, parse_record(entry));
    manifest.files.push_back(std::move(record));
  }
  if (manifest.files.back().name != kManifestName || manifest.files.back().bytes != own_bytes) {
    return corrupt("its last entry is not its own");
  }
  manifest.files.pop_back();
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const FileRecord& a, const FileRecord& b) { return a.name < b.name; });
  if (table_count(manifest, parts_allowed)) return {};
  std::string names;
  for (const auto& f : manifest.files) {
    if (names.size() > 200) {
      names += ", ...";
      break;
    }
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", f.name.substr(0, 100));
  }
  return corrupt(
      fmt::format("it names {}; a checkpoint has {}, {}, {} and tables.safetensors or the parts "
                  "tables-<index>-of-<count>.safetensors, each once",
                  names, kModelName, kOptimizerName, kStateName));
}

}  // namespace

std::string table_file_name(int index, int count) {
  if (count == 1) return "tables.safetensors";
  return fmt::format("tables-{:05}-of-{:05}.safetensors", index, count);
}

const FileRecord* Manifest::find(std::string_view name) const {
  const auto at = std::lower_bound(files.begin(), files.end(), name,
                                   [](const FileRecord& f, auto n) { return f.name < n; });
  return at != files.end() && at->name == name ? &*at : nullptr;
}

std::vector<std::string> Manifest::table_files() const {
  const int count = static_cast<int>(files.size()) - 3;
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(table_file_name(i, count));
  return names;
}

std::uint64_t Manifest::table_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& f : files) sum += f.name.starts_with(kTablesStem) ? f.bytes : 0;
  return sum;
}

std::uint64_t Manifest::bytes_of_all() const {
  std::uint64_t sum = bytes;
  for (const auto& f : files) sum += f.bytes;
  return sum;
}

std::string manifest_text(Manifest& manifest) {
  // The size is part of the text: one more round when its digits became more.
  std::string text = text_with(manifest, 0);
  for (std::uint64_t size = 0; size != text.size();) {
    size = text.size();
    text = text_with(manifest, size);
  }
  const auto at = own_digits(text);
  PL_CHECK(at != std::string::npos, "a manifest ends with its own entry");
  manifest.bytes = text.size();
  manifest.xxh3 = hash_of(text);
  return text.replace(at, kHashDigits, hex(manifest.xxh3));
}

Result<Manifest> parse_manifest(const std::string& text, const std::filesystem::path& path) {
  const auto corrupt = [&](std::string_view what) {
    return Error(Code::kCorruptData, fmt::format("{}: {}", path.string(), what));
  };
  const auto at = own_digits(text);
  if (at == std::string::npos) return corrupt("it does not end with its own hash");
  std::string zeroed = text;
  zeroed.replace(at, kHashDigits, kHashDigits, '0');
  Manifest manifest;
  manifest.bytes = text.size();
  manifest.xxh3 = hash_of(zeroed);
  if (text.substr(at, kHashDigits) != hex(manifest.xxh3)) return corrupt("its own hash differs");
  const auto parsed = parse_json(text);
  if (!parsed) return corrupt(parsed.error().message());
  const auto& json = *parsed;
  if (!json.is_object() || json.value("format", nlohmann::json()) != kFormat ||
      !json.value("version", nlohmann::json()).is_number_integer()) {
    return corrupt("it is not a manifest of a checkpoint");
  }
  const auto version = json.at("version").get<std::int64_t>();
  if (version < 1 || version > kManifestVersion) {
    return Error(Code::kUnavailable,
                 fmt::format("{} has version {}; this program reads versions 1 to {}: use the "
                             "version that wrote it",
                             path.string(), version, kManifestVersion));
  }
  manifest.version = static_cast<int>(version);
  const auto step = json.value("step", nlohmann::json());
  if (!step.is_number_integer() || step.get<std::int64_t>() < 0) {
    return corrupt("step is not a whole number >= 0");
  }
  manifest.step = step.get<std::int64_t>();
  if (json.contains("base") && version >= 2) {
    auto base = parse_base(json.at("base"), manifest.step);
    if (!base) return corrupt(base.error().message());
    manifest.base = *base;
  }
  const auto files =
      parse_files(json.value("files", nlohmann::json()), text.size(), version >= 2, manifest);
  if (!files) return corrupt(files.error().message());
  return manifest;
}

}  // namespace paceline::checkpoint
