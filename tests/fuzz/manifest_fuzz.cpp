// The manifest reader: any text is a manifest that names the files of a checkpoint, or an error.
#include <fmt/format.h>

#include <string>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/manifest.hpp"
#include "fuzz/target.hpp"

namespace {

using namespace paceline;
using checkpoint::Manifest;

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

bool same(const Manifest& a, const Manifest& b) {
  if (a.step != b.step || a.base != b.base || a.files.size() != b.files.size()) return false;
  for (std::size_t i = 0; i < a.files.size(); ++i) {
    const auto &x = a.files[i], &y = b.files[i];
    if (x.name != y.name || x.bytes != y.bytes || x.xxh3 != y.xxh3) return false;
  }
  return true;
}

void read(const std::string& text) {
  auto manifest = checkpoint::parse_manifest(text, "MANIFEST.json");
  if (!manifest) return;
  for (const auto& f : manifest->files) {
    // What is opened lies in the checkpoint.
    PL_CHECK(f.name.find('/') == std::string::npos && f.name.front() != '.', "a name of a file");
    PL_CHECK(manifest->find(f.name) != nullptr, "a file that is named is found");
  }
  PL_CHECK(!manifest->table_files().empty(), "a checkpoint has a table");
  PL_CHECK(manifest->step >= 0 && (!manifest->base || manifest->base->step < manifest->step),
           "a base comes before");
  const auto written = checkpoint::manifest_text(*manifest);
  const auto again = checkpoint::parse_manifest(written, "again");
  PL_CHECK(again.ok() && same(*again, *manifest) && again->id() == manifest->id(),
           "a manifest reads back");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text);
  read(with_own_hash(text));
  return 0;
}
