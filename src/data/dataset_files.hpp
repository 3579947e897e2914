// Which files a dataset consists of, on local or remote storage.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace arrow::fs {
class FileSystem;
}

namespace paceline::data {

struct DatasetFile {
  std::string path;      // as it is opened and named in messages; remote: without secrets
  std::string relative;  // to the root of its entry: what the fingerprint and the order see
  std::int64_t bytes = 0;
  std::int64_t changed_ns = 0;                    // local: when it was written last
  std::shared_ptr<arrow::fs::FileSystem> remote;  // null for a local file
  std::string remote_path;                        // within `remote`
};

// Each entry is a directory (searched recursively for *.parquet; names that begin with '.' or '_'
// are passed over), a file of any name, a glob (`**` is any number of folders), or a URI of one of
// these. Files come in the order of the entries, within one entry by relative path.
// Errors: an entry without files, a file named twice, storage that cannot be reached (within the
// time limits of remote_files.hpp).
Result<std::vector<DatasetFile>> find_files(const std::vector<std::string>& entries);

}  // namespace paceline::data
