// The readers of what a run saved beside its tensors: state.json with the position, MANIFEST.json.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/manifest.hpp"
#include "fuzz/target.hpp"
#include "train/run_state.hpp"

namespace {

using namespace paceline;

// With a right hash in the place of the last one, so that what follows is reached too.
std::string with_own_hash(std::string text) {
  constexpr std::string_view kKey = "\"xxh3\": \"";
  constexpr std::size_t kDigits = 16;
  const auto key = text.rfind(kKey);
  if (key == std::string::npos || text.size() - key - kKey.size() < kDigits) return text;
  text.replace(key + kKey.size(), kDigits, kDigits, '0');
  return text.replace(key + kKey.size(), kDigits,
                      fmt::format("{:016x}", checkpoint::hash_of(text)));
}

void read_manifest(const std::string& text) {
  auto manifest = checkpoint::parse_manifest(text, "MANIFEST.json");
  if (!manifest) return;
  const auto again = checkpoint::parse_manifest(checkpoint::manifest_text(*manifest), "again");
  PL_CHECK(
      again.ok() && again->step == manifest->step && again->files.size() == manifest->files.size(),
      "a manifest reads back");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read_manifest(text);
  read_manifest(with_own_hash(text));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) return 0;
  const auto state = train::state_from_json(json);
  if (!state) return 0;
  const auto& p = state->position;
  PL_CHECK(p.epoch >= 0 && p.next_row >= 0 && p.rows >= 0 && p.batches >= 0 &&
               p.shuffle_window >= 0 && state->counters.step >= 0,
           "no count is below zero");
  return 0;
}
