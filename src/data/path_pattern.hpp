// Patterns of paths, the same for local and remote storage. Private to this room.
#pragma once

#include <string>
#include <string_view>

namespace paceline::data {

// `*`, `?` and `[...]` within a name, `**` as a name of its own for any number of folders. Names
// that begin with '.' are matched only by a pattern that does too.
bool path_matches(std::string_view pattern, std::string_view path);

bool is_pattern(std::string_view path);

// The folder in front of the first name with a pattern character; "." when there is none.
std::string pattern_root(const std::string& pattern);

}  // namespace paceline::data
