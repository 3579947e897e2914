// The program's log: one line per event on standard error, thread-safe. Text is formatted by the
// caller (fmt::format). Lines of the live progress display do not go through here.
#pragma once

#include <string_view>

namespace paceline::log {

enum class Level { kDebug, kInfo, kWarning, kError };

void set_level(Level level);
void debug(std::string_view text);
void info(std::string_view text);
void warning(std::string_view text);
void error(std::string_view text);

}  // namespace paceline::log
