// The files of a dataset as text, kept beside what was made from them, so that a dataset that
// changed can be told by its first file that differs.
#pragma once

#include <string>
#include <vector>

#include "core/error.hpp"
#include "data/source.hpp"

namespace paceline::data {

// One JSON object a line, in the dataset's order.
std::string listing_text(const std::vector<FileInfo>& files);
// kCorruptData when `text` is no such listing.
Result<std::vector<FileInfo>> read_listing(const std::string& text);

// "b/part-3.parquet: it had 1,200 bytes and 40 rows, now 1,180 and 39"; empty when they are equal.
std::string first_difference(const std::vector<FileInfo>& was, const std::vector<FileInfo>& is);

}  // namespace paceline::data
