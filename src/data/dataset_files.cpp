#include "data/dataset_files.hpp"

#include <fmt/format.h>

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "data/path_pattern.hpp"
#include "data/remote_files.hpp"

namespace paceline::data {
namespace fs = std::filesystem;
namespace {

bool is_hidden(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('.') || name.starts_with('_');
}

Error io_error(const std::string& path, const std::error_code& error) {
  const Code code = error == std::errc::no_such_file_or_directory ? Code::kNotFound : Code::kIo;
  return Error(code, fmt::format("cannot read {}: {}", path, error.message()));
}

std::int64_t changed_ns(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return 0;
  return std::int64_t{found.st_mtim.tv_sec} * 1'000'000'000 + found.st_mtim.tv_nsec;
}

Result<DatasetFile> file_at(const fs::path& path, const fs::path& root) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) return io_error(path.string(), error);
  return DatasetFile{path.string(),
                     path.lexically_relative(root).generic_string(),
                     static_cast<std::int64_t>(bytes),
                     changed_ns(path.string()),
                     nullptr,
                     {}};
}

Result<void> add_directory(const fs::path& root, std::vector<DatasetFile>& out) {
  std::error_code error;
  fs::recursive_directory_iterator it(root, fs::directory_options::follow_directory_symlink, error);
  fs::path at = root;
  for (const fs::recursive_directory_iterator end; !error && it != end; it.increment(error)) {
    at = it->path();
    std::error_code unknown;  // a link to nowhere
    const bool directory = it->is_directory(unknown);
    if (is_hidden(at)) {
      if (directory) it.disable_recursion_pending();
      continue;
    }
    if (directory || at.extension() != ".parquet") continue;
    PL_TRY(auto file, file_at(it->path(), root));
    out.push_back(std::move(file));
  }
  if (error) return io_error(at.string(), error);
  return {};
}

Result<void> add_matches(const std::string& pattern, std::vector<DatasetFile>& out) {
  const std::string root = pattern_root(pattern);
  std::error_code error;
  if (!fs::is_directory(root, error)) return {};
  const bool relative = root == "." && !pattern.starts_with("./");
  const std::string rest = pattern.substr(relative ? 0 : root == "/" ? 1 : root.size() + 1);
  // Folders deeper than the pattern are not looked into.
  const bool any_depth = rest.find("**") != std::string::npos;
  const auto depth = std::count(rest.begin(), rest.end(), '/');
  fs::recursive_directory_iterator it(root, fs::directory_options::follow_directory_symlink, error);
  for (const fs::recursive_directory_iterator end; !error && it != end; it.increment(error)) {
    const bool directory = it->is_directory(error);
    if (error) break;
    if (directory) {
      if (!any_depth && it.depth() >= depth) it.disable_recursion_pending();
      continue;
    }
    if (!path_matches(rest, it->path().lexically_relative(root).generic_string())) continue;
    PL_TRY(auto file, file_at(it->path(), root));
    out.push_back(std::move(file));
  }
  if (error) return io_error(root, error);
  return {};
}

Result<std::vector<DatasetFile>> local_files(const std::string& entry) {
  std::vector<DatasetFile> files;
  std::error_code error;
  const auto status = fs::status(entry, error);
  if (fs::is_directory(status)) {
    PL_TRY_VOID(add_directory(entry, files));
    if (files.empty()) {
      return Error(Code::kNotFound, fmt::format("{}: no *.parquet file in this directory", entry));
    }
  } else if (fs::exists(status)) {
    PL_TRY(auto file, file_at(entry, fs::path(entry).parent_path()));
    files.push_back(std::move(file));
  } else if (is_pattern(entry)) {
    PL_TRY_VOID(add_matches(entry, files));
    if (files.empty()) {
      return Error(Code::kNotFound, fmt::format("{}: no file matches this pattern", entry));
    }
  } else {
    return Error(Code::kNotFound,
                 fmt::format("{}: no such file or directory (allowed: a directory, a file or a "
                             "glob of Parquet files)",
                             entry));
  }
  return files;
}

Result<std::vector<DatasetFile>> files_of(const std::string& entry) {
  constexpr std::string_view kLocal = "file://";
  Result<std::vector<DatasetFile>> files = entry.starts_with(kLocal)
                                               ? local_files(entry.substr(kLocal.size()))
                                           : is_uri(entry) ? find_remote_files(entry)
                                                           : local_files(entry);
  if (!files) return files;
  std::sort(files->begin(), files->end(),
            [](const DatasetFile& a, const DatasetFile& b) { return a.relative < b.relative; });
  return files;
}

}  // namespace

Result<std::vector<DatasetFile>> find_files(const std::vector<std::string>& entries) {
  if (entries.empty()) return Error(Code::kNotFound, "no data files: the list of paths is empty");
  std::vector<DatasetFile> all;
  std::set<std::string> seen;
  for (const auto& entry : entries) {
    PL_TRY(auto files, files_of(entry));
    for (auto& file : files) {
      std::error_code error;
      const auto real = file.remote ? fs::path() : fs::canonical(file.path, error);
      if (!seen.insert(error || file.remote ? file.path : real.string()).second) {
        return Error(
            Code::kInvalidArgument,
            fmt::format("{}: this file is named twice in the list of paths, its rows would "
                        "be seen twice",
                        file.path));
      }
      all.push_back(std::move(file));
    }
  }
  return all;
}

}  // namespace paceline::data
