// Amounts of memory: as people write them, and what the machine has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paceline {

// "1536", "64 MiB", "1.5GiB", "2 TB": B, KiB, MiB, GiB, TiB are powers of 1024; kB, MB, GB, TB of
// 1000. Empty for anything else, a negative amount, or one beyond int64.
std::optional<std::int64_t> parse_bytes(std::string_view text);

// "1.5 GiB": three significant digits or whole bytes.
std::string bytes_text(std::int64_t bytes);

// What a process may use at most: the machine's memory, or its control group's limit where that is
// smaller.
std::int64_t machine_memory_bytes();

}  // namespace paceline
