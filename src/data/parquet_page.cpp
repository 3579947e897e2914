#include "data/parquet_page.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace paceline::data {
namespace {

using parquet::Encoding;

int width_of(int max_level) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(max_level)));
}

Error too_short() {
  return Error(Code::kCorruptData, "a page is shorter than the levels it declares");
}

// Levels of a page of version 1 stand in front of `rest`, by their encoding.
Result<PackedLevels> take_levels(Encoding::type encoding, int max_level, std::int64_t count,
                                 std::span<const std::uint8_t>& rest) {
  PackedLevels levels{{}, width_of(max_level), count};
  if (max_level == 0) return levels;
  std::size_t bytes = 0;
  if (encoding == Encoding::RLE) {
    std::uint32_t length = 0;
    if (rest.size() < sizeof length) return too_short();
    std::memcpy(&length, rest.data(), sizeof length);
    rest = rest.subspan(sizeof length);
    bytes = length;
  } else if (encoding == Encoding::BIT_PACKED) {
    levels.only_groups = true;
    bytes = static_cast<std::size_t>((count * levels.bit_width + 7) / 8);
  } else {
    return Error(Code::kCorruptData, fmt::format("levels in the encoding {}, which none may have",
                                                 parquet::EncodingToString(encoding)));
  }
  if (bytes > rest.size()) return too_short();
  levels.bytes = rest.first(bytes);
  rest = rest.subspan(bytes);
  return levels;
}

}  // namespace

Result<PageParts> split_page(const parquet::Page& page, int max_def, int max_rep) {
  const auto& data = static_cast<const parquet::DataPage&>(page);
  const std::int64_t count = data.num_values();
  if (count < 0 || page.size() < 0) return too_short();
  PageParts parts;
  parts.encoding = data.encoding();
  std::span<const std::uint8_t> rest(page.data(), static_cast<std::size_t>(page.size()));
  if (page.type() == parquet::PageType::DATA_PAGE) {
    const auto& v1 = static_cast<const parquet::DataPageV1&>(page);
    PL_TRY(parts.rep, take_levels(v1.repetition_level_encoding(), max_rep, count, rest));
    PL_TRY(parts.def, take_levels(v1.definition_level_encoding(), max_def, count, rest));
  } else {
    const auto& v2 = static_cast<const parquet::DataPageV2&>(page);
    const std::int64_t rep = v2.repetition_levels_byte_length();
    const std::int64_t def = v2.definition_levels_byte_length();
    if (rep < 0 || def < 0 || rep + def > page.size()) return too_short();
    const auto rep_bytes = static_cast<std::size_t>(rep);
    const auto def_bytes = static_cast<std::size_t>(def);
    parts.rep = {rest.first(rep_bytes), width_of(max_rep), count};
    parts.def = {rest.subspan(rep_bytes, def_bytes), width_of(max_def), count};
    rest = rest.subspan(rep_bytes + def_bytes);
  }
  parts.values = rest;
  return parts;
}

}  // namespace paceline::data
