#include "data/dataset_files.hpp"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

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

Result<DatasetFile> file_at(const fs::path& path, const fs::path& root) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) return io_error(path.string(), error);
  return DatasetFile{path.string(), path.lexically_relative(root).generic_string(),
                     static_cast<std::int64_t>(bytes)};
}

Result<void> add_directory(const fs::path& root, std::vector<DatasetFile>& out) {
  std::error_code error;
  fs::recursive_directory_iterator it(root, fs::directory_options::follow_directory_symlink, error);
  for (const fs::recursive_directory_iterator end; !error && it != end; it.increment(error)) {
    const bool directory = it->is_directory(error);
    if (error) break;
    if (is_hidden(it->path())) {
      if (directory) it.disable_recursion_pending();
      continue;
    }
    if (directory || it->path().extension() != ".parquet") continue;
    PL_TRY(auto file, file_at(it->path(), root));
    out.push_back(std::move(file));
  }
  if (error) return io_error(root.string(), error);
  return {};
}

// The folder in front of the first pattern character.
fs::path glob_root(const std::string& pattern) {
  const auto slash = pattern.substr(0, pattern.find_first_of("*?[")).rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : pattern.substr(0, slash);
}

Result<void> add_glob(const std::string& pattern, std::vector<DatasetFile>& out) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<std::string> paths;
  if (status == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (status != 0 && status != GLOB_NOMATCH) {
    return Error(Code::kIo, fmt::format("cannot read a folder of the pattern {}", pattern));
  }
  const fs::path root = glob_root(pattern);
  for (const auto& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) continue;
    const fs::path plain = root == "." && !path.starts_with("./") ? "./" + path : path;
    PL_TRY(auto file, file_at(plain, root));
    out.push_back(std::move(file));
  }
  return {};
}

Result<std::vector<DatasetFile>> files_of(const std::string& entry) {
  std::vector<DatasetFile> files;
  if (entry.find("://") != std::string::npos) {
    return Error(Code::kUnavailable,
                 fmt::format("{}: remote storage is not supported by this build; allowed: local "
                             "directories, files and globs",
                             entry));
  }
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
  } else if (entry.find_first_of("*?[") != std::string::npos) {
    PL_TRY_VOID(add_glob(entry, files));
    if (files.empty()) {
      return Error(Code::kNotFound, fmt::format("{}: no file matches this pattern", entry));
    }
  } else {
    return Error(Code::kNotFound,
                 fmt::format("{}: no such file or directory (allowed: a directory, a file or a "
                             "glob of Parquet files)",
                             entry));
  }
  std::sort(files.begin(), files.end(),
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
      const auto real = fs::canonical(file.path, error);
      if (!seen.insert(error ? file.path : real.string()).second) {
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
