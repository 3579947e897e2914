#include "data/dataset_listing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

namespace paceline::data {
namespace {

bool has(const std::vector<FileInfo>& files, const std::string& relative) {
  return std::any_of(files.begin(), files.end(),
                     [&](const FileInfo& f) { return f.relative == relative; });
}

std::string size_text(const FileInfo& f) {
  return fmt::format("{} bytes, {} rows in {} row groups", f.bytes, f.rows, f.blocks);
}

}  // namespace

std::string listing_text(const std::vector<FileInfo>& files) {
  std::string text;
  for (const auto& f : files) {
    const nlohmann::json line = {{"file", f.relative},
                                 {"bytes", f.bytes},
                                 {"rows", f.rows},
                                 {"row_groups", f.blocks},
                                 {"digest", fmt::format("{:016x}", f.digest)}};
    // A file name need not be UTF-8.
    text += line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + '\n';
  }
  return text;
}

Result<std::vector<FileInfo>> read_listing(const std::string& text) {
  std::vector<FileInfo> files;
  std::istringstream in(text);
  try {
    for (std::string line; std::getline(in, line);) {
      const auto object = nlohmann::json::parse(line);
      FileInfo f;
      object.at("file").get_to(f.relative);
      object.at("bytes").get_to(f.bytes);
      object.at("rows").get_to(f.rows);
      object.at("row_groups").get_to(f.blocks);
      f.digest = std::stoull(object.at("digest").get<std::string>(), nullptr, 16);
      files.push_back(std::move(f));
    }
  } catch (const std::exception& e) {
    return Error(Code::kCorruptData,
                 fmt::format("line {} of the list of data files: {}", files.size() + 1, e.what()));
  }
  return files;
}

std::string first_difference(const std::vector<FileInfo>& was, const std::vector<FileInfo>& is) {
  for (std::size_t i = 0; i < std::max(was.size(), is.size()); ++i) {
    if (i >= was.size()) return fmt::format("{} is new ({})", is[i].relative, size_text(is[i]));
    if (i >= is.size()) return fmt::format("{} is gone", was[i].relative);
    if (was[i] == is[i]) continue;
    if (was[i].relative != is[i].relative) {
      if (!has(is, was[i].relative)) return fmt::format("{} is gone", was[i].relative);
      if (!has(was, is[i].relative)) {
        return fmt::format("{} is new ({})", is[i].relative, size_text(is[i]));
      }
      return fmt::format("{} stands where {} was", is[i].relative, was[i].relative);
    }
    if (size_text(was[i]) == size_text(is[i])) {
      return fmt::format("{} has the same size ({}), but other row groups", is[i].relative,
                         size_text(is[i]));
    }
    return fmt::format("{} had {}, now {}", is[i].relative, size_text(was[i]), size_text(is[i]));
  }
  return {};
}

}  // namespace paceline::data
