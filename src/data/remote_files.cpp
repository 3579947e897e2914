#include "data/remote_files.hpp"

#include <arrow/filesystem/filesystem.h>
#include <arrow/filesystem/s3fs.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "data/path_pattern.hpp"

namespace paceline::data {
namespace {

namespace fs = arrow::fs;

// The parts of scheme://where?options that are ours to look at.
struct Uri {
  std::string scheme, where, options;

  // Without options and the keys that may stand in front of an '@': for messages.
  std::string text() const {
    const auto host = where.substr(0, where.find('/'));
    const auto at = host.rfind('@');
    return scheme + "://" + (at == std::string::npos ? where : where.substr(at + 1));
  }
};

Uri parse(const std::string& uri) {
  const auto colon = uri.find("://");
  Uri u{uri.substr(0, colon), uri.substr(colon + 3), {}};
  if (const auto question = u.where.find('?'); question != std::string::npos) {
    u.options = u.where.substr(question);
    u.where.resize(question);
  }
  while (u.where.ends_with('/')) u.where.pop_back();
  return u;
}

Error failed(const Uri& uri, const arrow::Status& status) {
  const Code code = status.IsInvalid() ? Code::kInvalidArgument : Code::kUnavailable;
  return Error(code, fmt::format("{}: {}", uri.text(), status.message()));
}

// Arrow wants its S3 client ended before the process is, and before the static objects of the
// client, which come into being with its first requests: so this is asked for anew after requests,
// as what is registered last happens first.
void end_s3_with_process() {
  std::atexit([] { (void)fs::EnsureS3Finalized(); });
}

arrow::Result<std::shared_ptr<fs::FileSystem>> connect(const Uri& uri, std::string* path) {
  const std::string text = uri.scheme + "://" + uri.where + uri.options;
  if (uri.scheme != "s3") return fs::FileSystemFromUri(text, path);
  ARROW_RETURN_NOT_OK(fs::EnsureS3Initialized());
  ARROW_ASSIGN_OR_RAISE(auto options, fs::S3Options::FromUri(text, path));
  options.connect_timeout = kConnectTimeoutS;
  options.request_timeout = kAnswerTimeoutS;
  options.retry_strategy = fs::S3RetryStrategy::GetAwsStandardRetryStrategy(kAttempts);
  ARROW_ASSIGN_OR_RAISE(auto s3, fs::S3FileSystem::Make(options));
  return std::static_pointer_cast<fs::FileSystem>(std::move(s3));
}

bool is_hidden(std::string_view relative) {
  for (std::size_t at = 0; at < relative.size();) {
    if (relative[at] == '.' || relative[at] == '_') return true;
    const auto slash = relative.find('/', at);
    if (slash == std::string_view::npos) return false;
    at = slash + 1;
  }
  return false;
}

// One entry on its file system.
struct Place {
  Uri uri;
  std::string prefix;  // of messages: what stands in front of a path of the file system
  std::shared_ptr<fs::FileSystem> storage;

  DatasetFile file(const fs::FileInfo& info, const std::string& relative) const {
    return {prefix + info.path(), relative, info.size(), 0, storage, info.path()};
  }
};

// Everything below `root` that `wanted` takes, by its path relative to the root.
template <typename Wanted>
Result<std::vector<DatasetFile>> list(const Place& place, const std::string& root,
                                      Wanted&& wanted) {
  fs::FileSelector selector;
  selector.base_dir = root;
  selector.recursive = true;
  const auto infos = place.storage->GetFileInfo(selector);
  if (!infos.ok()) return failed(place.uri, infos.status());
  std::vector<DatasetFile> files;
  for (const auto& info : *infos) {
    if (!info.IsFile() || info.path().size() <= root.size() + 1) continue;
    const std::string relative = info.path().substr(root.size() + 1);
    if (wanted(relative)) files.push_back(place.file(info, relative));
  }
  if (files.empty()) {
    return Error(Code::kNotFound, fmt::format("{}: no Parquet file there", place.uri.text()));
  }
  return files;
}

Result<std::vector<DatasetFile>> find_pattern(Uri uri) {
  const std::string pattern = uri.where;
  const std::string root = pattern_root(pattern);
  if (root == ".") {
    return Error(Code::kInvalidArgument,
                 fmt::format("{}: found a pattern in the bucket, allowed behind it", uri.text()));
  }
  Place place{uri, uri.scheme + "://", nullptr};
  Uri folder = uri;
  folder.where = root;
  std::string path;
  auto storage = connect(folder, &path);
  if (!storage.ok()) return failed(uri, storage.status());
  place.storage = *storage;
  const std::string rest = pattern.substr(root.size() + 1);
  return list(place, path,
              [&](const std::string& relative) { return path_matches(rest, relative); });
}

Result<std::vector<DatasetFile>> find_path(const Uri& uri) {
  Place place{uri, uri.scheme + "://", nullptr};
  std::string path;
  auto storage = connect(uri, &path);
  if (!storage.ok()) return failed(uri, storage.status());
  place.storage = *storage;
  const auto info = place.storage->GetFileInfo(path);
  if (!info.ok()) return failed(uri, info.status());
  if (info->IsFile()) {
    return std::vector<DatasetFile>{place.file(*info, info->base_name())};
  }
  if (!info->IsDirectory()) {
    return Error(Code::kNotFound,
                 fmt::format("{}: no such file or folder (allowed: a folder, a file or a glob of "
                             "Parquet files)",
                             uri.text()));
  }
  return list(place, path, [](const std::string& relative) {
    return relative.ends_with(".parquet") && !is_hidden(relative);
  });
}

}  // namespace

bool is_uri(const std::string& entry) { return entry.find("://") != std::string::npos; }

Result<std::vector<DatasetFile>> find_remote_files(const std::string& entry) {
  const Uri uri = parse(entry);
  if (uri.scheme != "s3" && uri.scheme != "file") {
    // Others know no time limit.
    return Error(Code::kInvalidArgument,
                 fmt::format("{}: found {}://, allowed are s3://, file:// and local paths",
                             uri.text(), uri.scheme));
  }
  auto files = is_pattern(uri.where) ? find_pattern(uri) : find_path(uri);
  if (uri.scheme == "s3") end_s3_with_process();
  return files;
}

}  // namespace paceline::data
