#include "checkpoint/manifest.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

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
  const nlohmann::ordered_json json = {{"format", kFormat},
                                       {"version", kManifestVersion},
                                       {"step", manifest.step},
                                       {"files", std::move(files)}};
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
  if (!hash || record.name.empty() || record.name.front() == '.' ||
      record.name.find('/') != std::string::npos) {
    return wrong;
  }
  record.xxh3 = *hash;
  return record;
}

}  // namespace

const FileRecord* Manifest::find(std::string_view name) const {
  for (const auto& f : files) {
    if (f.name == name) return &f;
  }
  return nullptr;
}

std::string manifest_text(const Manifest& manifest) {
  // The size is part of the text: one more round when its digits became more.
  std::string text = text_with(manifest, 0);
  for (std::uint64_t size = 0; size != text.size();) {
    size = text.size();
    text = text_with(manifest, size);
  }
  const auto at = own_digits(text);
  PL_CHECK(at != std::string::npos, "a manifest ends with its own entry");
  return text.replace(at, kHashDigits, hex(hash_of(text)));
}

Result<Manifest> parse_manifest(const std::string& text, const std::filesystem::path& path) {
  const auto corrupt = [&](std::string_view what) {
    return Error(Code::kCorruptData, fmt::format("{}: {}", path.string(), what));
  };
  const auto at = own_digits(text);
  if (at == std::string::npos) return corrupt("it does not end with its own hash");
  std::string zeroed = text;
  zeroed.replace(at, kHashDigits, kHashDigits, '0');
  if (text.substr(at, kHashDigits) != hex(hash_of(zeroed))) {
    return corrupt("its own hash differs");
  }
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", nlohmann::json()) != kFormat ||
      !json.value("version", nlohmann::json()).is_number_integer()) {
    return corrupt("it is not a manifest of a checkpoint");
  }
  if (const auto version = json.at("version").get<std::int64_t>(); version != kManifestVersion) {
    return Error(Code::kUnavailable,
                 fmt::format("{} has version {}; this program reads version {}: use the version "
                             "that wrote it",
                             path.string(), version, kManifestVersion));
  }
  Manifest manifest;
  manifest.bytes = text.size();
  const auto step = json.value("step", nlohmann::json());
  const auto files = json.value("files", nlohmann::json());
  if (!step.is_number_integer() || !files.is_array() || files.empty()) {
    return corrupt("step or files are not what they should be");
  }
  manifest.step = step.get<std::int64_t>();
  for (const auto& entry : files) {
    auto record = parse_record(entry);
    if (!record) return corrupt(record.error().message());
    if (manifest.find(record->name) != nullptr) return corrupt("a file is named twice");
    manifest.files.push_back(std::move(*record));
  }
  if (manifest.files.back().name != kManifestName || manifest.files.back().bytes != text.size()) {
    return corrupt("its last entry is not its own");
  }
  manifest.files.pop_back();
  return manifest;
}

}  // namespace paceline::checkpoint
