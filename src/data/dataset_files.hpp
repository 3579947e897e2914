// Which files a dataset consists of. Private to this room.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace paceline::data {

struct DatasetFile {
  std::string path;      // as it is opened and named in messages
  std::string relative;  // to the root of its entry: what the fingerprint and the order see
  std::int64_t bytes = 0;
};

// Each entry is a directory (searched recursively for *.parquet; names that begin with '.' or '_'
// are passed over), a file of any name, or a glob. Files come in the order of the entries, within
// one entry by relative path. Errors: an entry without files, or a file named twice.
Result<std::vector<DatasetFile>> find_files(const std::vector<std::string>& entries);

}  // namespace paceline::data
