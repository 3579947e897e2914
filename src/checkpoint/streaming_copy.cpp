#include "checkpoint/streaming_copy.hpp"

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace paceline::checkpoint {
namespace {

constexpr std::size_t kVector = sizeof(__m256i);
// Two cache lines a turn.
constexpr std::size_t kTurn = 4 * kVector;

__m256i load(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

void store(std::byte* to, __m256i v) { _mm256_stream_si256(reinterpret_cast<__m256i*>(to), v); }

}  // namespace

void streaming_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t past = reinterpret_cast<std::uintptr_t>(to) % kVector;
  const std::size_t head = std::min(bytes, past == 0 ? 0 : kVector - past);
  const std::size_t body = (bytes - head) / kTurn * kTurn;
  if (head > 0) std::memcpy(to, from, head);
  for (std::size_t at = head; at < head + body; at += kTurn) {
    const __m256i a = load(from + at), b = load(from + at + kVector);
    const __m256i c = load(from + at + 2 * kVector), d = load(from + at + 3 * kVector);
    store(to + at, a);
    store(to + at + kVector, b);
    store(to + at + 2 * kVector, c);
    store(to + at + 3 * kVector, d);
  }
  // Such stores are ordered by this alone.
  _mm_sfence();
  const std::size_t done = head + body;
  if (done < bytes) std::memcpy(to + done, from + done, bytes - done);
}

}  // namespace paceline::checkpoint
