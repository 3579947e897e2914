// JSON of files that may hold anything. Private to the room.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.hpp"

namespace paceline::checkpoint {

// Deeper nesting than any file of ours has is refused before it is parsed: copying and printing
// such a value would need as many stack frames. kCorruptData, with a text without the file's name.
Result<nlohmann::json> parse_json(std::string_view text);

}  // namespace paceline::checkpoint
