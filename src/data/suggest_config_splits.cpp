#include "data/suggest_config_splits.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "core/config_text.hpp"

namespace paceline::data {
namespace {

namespace fs = std::filesystem;

// The entries of one split of `root`, which holds train, valid and test.
std::string split_line(const fs::path& root, const char* split) {
  std::error_code ignored;
  for (const auto& path : {root / split, root / (std::string(split) + ".parquet")}) {
    if (!fs::exists(path, ignored)) continue;
    return fmt::format("{} = [{}]\n", split, string_text(fs::absolute(path).string()));
  }
  return "";
}

}  // namespace

Splits find_splits(const std::vector<std::string>& paths) {
  Splits s;
  if (paths.size() == 1 && paths[0].find("://") == std::string::npos) {
    const fs::path root(paths[0]);
    s.lines = split_line(root, "train");
    if (!s.lines.empty()) {
      std::error_code ignored;
      const bool folder = fs::is_directory(root / "train", ignored);
      s.train = {(root / (folder ? "train" : "train.parquet")).string()};
      s.lines += split_line(root, "valid") + split_line(root, "test");
      return s;
    }
  }
  s.train = paths;
  const auto absolute = [](const std::string& path) {
    const bool uri = path.find("://") != std::string::npos;
    return string_text(uri ? path : fs::absolute(path).string());
  };
  s.lines = fmt::format("train = {}\n", list_text(paths, absolute));
  return s;
}

}  // namespace paceline::data
