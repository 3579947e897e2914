// A copy of what is not read again soon. Private to the room.
#pragma once

#include <cstddef>

namespace paceline::checkpoint {

// memcpy whose stores go past the caches, so that they read nothing from memory and leave the
// caches to those that compute; memcpy itself does so only above a size that differs from machine
// to machine. Any sizes and alignments, no overlap. Other threads see the stores as they see any
// others that came before a release.
void streaming_copy(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace paceline::checkpoint
