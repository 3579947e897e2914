#include "data/parquet_levels.hpp"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace paceline::data {
namespace {

constexpr std::uint64_t kOnes = ~std::uint64_t{0};

// Hands runs and groups to `sink`: run(level, n) and group(packed, n), n <= 8 levels of one group.
template <typename Sink>
class LevelWalk {
 public:
  LevelWalk(const PackedLevels& levels, Sink sink)
      : at_(levels.bytes.data()),
        end_(at_ + levels.bytes.size()),
        width_(levels.bit_width),
        left_(levels.count),
        sink_(sink) {}

  Result<void> all(bool only_groups) {
    if (left_ > 0 && width_ == 0) {
      sink_.run(0, left_);
      return {};
    }
    if (only_groups) return groups((left_ + 7) / 8);
    while (left_ > 0) {
      PL_TRY(const std::int64_t header, varint());
      if ((header & 1) != 0) {
        PL_TRY_VOID(groups(header >> 1));
        continue;
      }
      if (at_ == end_) return cut_off();
      const std::int64_t n = std::min(header >> 1, left_);
      sink_.run(*at_++, n);
      left_ -= n;
    }
    return {};
  }

 private:
  static Error cut_off() { return Error(Code::kCorruptData, "a page ends within its levels"); }

  Result<std::int64_t> varint() {
    std::int64_t value = 0;
    for (int shift = 0; at_ != end_ && shift <= 28; shift += 7) {
      const std::uint8_t byte = *at_++;
      value |= std::int64_t{byte & 0x7F} << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return cut_off();
  }

  Result<void> groups(std::int64_t count) {
    for (; count > 0 && left_ > 0; --count) {
      const std::int64_t n = std::min<std::int64_t>(8, left_);
      // The last group of a page may be cut to the bytes of its levels.
      const std::int64_t there = std::min<std::int64_t>(width_, end_ - at_);
      if (there * 8 < n * width_) return cut_off();
      std::uint64_t packed = 0;
      std::memcpy(&packed, at_, static_cast<std::size_t>(there));
      sink_.group(packed, n);
      at_ += there;
      left_ -= n;
    }
    return {};
  }

  const std::uint8_t* at_;
  const std::uint8_t* end_;
  int width_;
  std::int64_t left_;
  Sink sink_;
};

// The lowest bit of each of 8 levels.
std::uint64_t low_bits(int width) {
  std::uint64_t mask = 0;
  for (int k = 0; k < 8; ++k) mask |= std::uint64_t{1} << (k * width);
  return mask;
}

struct BitSink {
  std::uint64_t* bits;
  int width;
  int wanted;
  std::uint64_t low;
  std::int64_t at = 0;

  void run(int level, std::int64_t n) {
    if (level == wanted) fill(n);
    at += n;
  }
  void group(std::uint64_t packed, std::int64_t n) {
    std::uint64_t equal = 0xFF;
    for (int b = 0; b < width; ++b) {
      const std::uint64_t plane = _pext_u64(packed >> b, low);
      equal &= ((wanted >> b) & 1) != 0 ? plane : ~plane;
    }
    equal &= (std::uint64_t{1} << n) - 1;
    const auto word = at >> 6;
    const auto shift = at & 63;
    bits[word] |= equal << shift;
    if (shift + n > 64) bits[word + 1] |= equal >> (64 - shift);
    at += n;
  }
  void fill(std::int64_t n) const {
    if (n == 0) return;
    const std::int64_t last = at + n - 1;
    const std::uint64_t head = kOnes << (at & 63);
    const std::uint64_t tail = kOnes >> (63 - (last & 63));
    const std::int64_t first_word = at >> 6;
    const std::int64_t last_word = last >> 6;
    if (first_word == last_word) {
      bits[first_word] |= head & tail;
      return;
    }
    bits[first_word] |= head;
    std::fill(bits + first_word + 1, bits + last_word, kOnes);
    bits[last_word] |= tail;
  }
};

struct ByteSink {
  std::uint8_t* out;
  int width;

  void run(int level, std::int64_t n) {
    std::memset(out, level, static_cast<std::size_t>(n));
    out += n;
  }
  void group(std::uint64_t packed, std::int64_t n) {
    const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
    for (std::int64_t k = 0; k < n; ++k) {
      *out++ = static_cast<std::uint8_t>(packed & mask);
      packed >>= width;
    }
  }
};

}  // namespace

Result<void> bits_where(const PackedLevels& levels, int wanted, std::vector<std::uint64_t>& bits) {
  PL_CHECK(levels.bit_width >= 0 && levels.bit_width <= 7, "levels of lists within lists");
  bits.assign(static_cast<std::size_t>(bit_words(levels.count)), 0);
  const BitSink sink{bits.data(), levels.bit_width, wanted, low_bits(levels.bit_width)};
  return LevelWalk(levels, sink).all(levels.only_groups);
}

Result<void> unpack_levels(const PackedLevels& levels, std::vector<std::uint8_t>& out) {
  PL_CHECK(levels.bit_width >= 0 && levels.bit_width <= 7, "levels of lists within lists");
  out.resize(static_cast<std::size_t>(levels.count));
  return LevelWalk(levels, ByteSink{out.data(), levels.bit_width}).all(levels.only_groups);
}

}  // namespace paceline::data
