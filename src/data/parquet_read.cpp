#include "data/parquet_read.hpp"

#include <parquet/column_reader.h>
#include <parquet/encoding.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <type_traits>

namespace paceline::data {
namespace {

using features::Element;
using parquet::Encoding;
using parquet::Type;

// Values converted at a time: they stay in the first-level cache.
constexpr std::int64_t kChunk = 2048;
// A footer that lies does not take more memory at once than this.
constexpr std::int64_t kMaxHint = std::int64_t{1} << 26;

Error corrupt(std::string what) { return Error(Code::kCorruptData, std::move(what)); }

// What a reading thread keeps, so that its memory does not grow and shrink with every block.
struct Scratch {
  LevelScratch levels;
  std::vector<std::int64_t> offsets;  // of a column that is not the first of its side
  std::vector<std::int64_t> ints;     // values while lists are fitted
  std::vector<float> floats;

  template <typename Out>
  std::vector<Out>& values() {
    if constexpr (std::is_same_v<Out, float>) {
      return floats;
    } else {
      return ints;
    }
  }
};
thread_local Scratch scratch;

// Makes room for `needed` values in place of those there. What is too small is let go before its
// successor comes, with a little room for blocks that are somewhat larger: blocks of one dataset
// differ by little, and doubling would break the bound of BlockInfo::bytes.
template <typename T>
void make_room(std::vector<T>& v, std::int64_t needed) {
  const auto n = static_cast<std::size_t>(needed);
  if (v.capacity() < n) {
    v = std::vector<T>();
    v.reserve(n + n / std::size_t{kRoomPart});
  }
  if (v.size() < n) v.resize(n);
}

// Grows to hold `needed`; what a vector already holds is never filled again.
template <typename T>
void grow_values(std::vector<T>& v, std::int64_t needed) {
  const auto n = static_cast<std::size_t>(needed);
  if (v.size() < n) v.resize(n <= v.capacity() ? n : std::max(n, v.size() + v.size() / 2));
}

template <typename Out, typename In>
Out convert(In value, bool is_unsigned) {
  if constexpr (std::is_integral_v<In>) {
    if (is_unsigned) return static_cast<Out>(static_cast<std::make_unsigned_t<In>>(value));
  }
  return static_cast<Out>(value);
}

// Decodes the values of one page after the other.
template <typename DType, typename Out>
class ValueDecoder {
 public:
  using In = typename DType::c_type;

  ValueDecoder(const parquet::ColumnDescriptor* descriptor, bool is_unsigned)
      : descriptor_(descriptor), is_unsigned_(is_unsigned) {}

  Result<void> set_dictionary(const parquet::DictionaryPage& page) {
    if (dictionary_) return corrupt("more than one dictionary");
    if (page.encoding() != Encoding::PLAIN && page.encoding() != Encoding::PLAIN_DICTIONARY) {
      return corrupt("a dictionary in the encoding " + parquet::EncodingToString(page.encoding()));
    }
    auto values = parquet::MakeTypedDecoder<DType>(Encoding::PLAIN, descriptor_);
    values->SetData(page.num_values(), page.data(), page.size());
    dictionary_ = parquet::MakeDictDecoder<DType>(descriptor_);
    dictionary_->SetDict(values.get());
    return {};
  }

  // `levels` is how many the page declares.
  Result<void> start_page(const PageParts& page, std::int64_t levels) {
    plain_ = {};
    decoder_ = nullptr;
    if constexpr (!std::is_same_v<In, bool>) {
      if (page.encoding == Encoding::PLAIN) {
        plain_ = page.values;
        return {};
      }
    }
    if (page.encoding == Encoding::RLE_DICTIONARY || page.encoding == Encoding::PLAIN_DICTIONARY) {
      if (!dictionary_) return corrupt("values of a dictionary that is not there");
      decoder_ = dictionary_.get();
    } else {
      auto& known = others_[page.encoding];
      if (!known) known = parquet::MakeTypedDecoder<DType>(page.encoding, descriptor_);
      decoder_ = known.get();
    }
    decoder_->SetData(static_cast<int>(levels), page.values.data(),
                      static_cast<int>(page.values.size()));
    return {};
  }

  // The next n values of the page.
  Result<void> read(std::int64_t n, Out* out) {
    if (decoder_ == nullptr) return read_plain(n, out);
    if constexpr (std::is_same_v<In, Out>) {
      return decode(n, out);
    } else {
      std::array<In, kChunk> chunk;
      for (std::int64_t done = 0; done < n; done += kChunk) {
        const std::int64_t m = std::min(kChunk, n - done);
        PL_TRY_VOID(decode(m, chunk.data()));
        for (std::int64_t i = 0; i < m; ++i) {
          out[done + i] = convert<Out>(chunk[static_cast<std::size_t>(i)], is_unsigned_);
        }
      }
      return {};
    }
  }

 private:
  static Error too_few() { return corrupt("a page holds fewer values than its levels say"); }

  Result<void> decode(std::int64_t n, In* out) {
    if (n > 0 && decoder_->Decode(out, static_cast<int>(n)) != n) return too_few();
    return {};
  }

  Result<void> read_plain(std::int64_t n, Out* out) {
    const auto bytes = static_cast<std::size_t>(n) * sizeof(In);
    if (bytes > plain_.size()) return too_few();
    if (n == 0) return {};
    if constexpr (std::is_same_v<In, Out>) {
      std::memcpy(out, plain_.data(), bytes);
    } else {
      const std::uint8_t* from = plain_.data();
      for (std::int64_t i = 0; i < n; ++i) {
        In value;
        std::memcpy(&value, from + i * static_cast<std::int64_t>(sizeof(In)), sizeof value);
        out[i] = convert<Out>(value, is_unsigned_);
      }
    }
    plain_ = plain_.subspan(bytes);
    return {};
  }

  const parquet::ColumnDescriptor* descriptor_;
  bool is_unsigned_;
  std::unique_ptr<parquet::DictDecoder<DType>> dictionary_;
  std::map<Encoding::type, std::unique_ptr<typename parquet::EncodingTraits<DType>::Decoder>>
      others_;
  std::span<const std::uint8_t> plain_;
  parquet::TypedDecoder<DType>* decoder_ = nullptr;
};

// Pages of a column chunk, of which the footer says that they hold `levels` levels.
struct Pages {
  parquet::PageReader& reader;
  const parquet::ColumnDescriptor* descriptor;
  std::int64_t levels;
};

// Calls body(PageParts) for every data page, after `decoder` was told of the page.
template <typename Decoder, typename Body>
Result<void> for_each_page(const Pages& pages, const ParquetColumn& c, Decoder& decoder,
                           Body&& body) {
  std::int64_t left = pages.levels;
  for (auto page = pages.reader.NextPage(); page; page = pages.reader.NextPage()) {
    switch (page->type()) {
      case parquet::PageType::DICTIONARY_PAGE:
        PL_TRY_VOID(decoder.set_dictionary(static_cast<const parquet::DictionaryPage&>(*page)));
        break;
      case parquet::PageType::DATA_PAGE:
      case parquet::PageType::DATA_PAGE_V2: {
        PL_TRY(const auto parts, split_page(*page, c.max_def, c.max_rep));
        if (parts.def.count > left) return corrupt("more values than the footer says");
        left -= parts.def.count;
        PL_TRY_VOID(decoder.start_page(parts, parts.def.count));
        PL_TRY_VOID(body(parts));
        break;
      }
      default:
        break;
    }
  }
  if (left != 0) return corrupt("fewer values than the footer says");
  return {};
}

// Makes room for the null elements among `elements` and sets them to 0; values stand in front.
template <typename Out>
void spread(Out* values, std::int64_t elements, const std::vector<std::int64_t>& nulls) {
  auto end = elements;
  auto stored = elements - static_cast<std::int64_t>(nulls.size());
  for (auto null = nulls.rbegin(); null != nulls.rend(); ++null) {
    const std::int64_t behind = end - (*null + 1);
    stored -= behind;
    std::memmove(values + *null + 1, values + stored,
                 static_cast<std::size_t>(behind) * sizeof(Out));
    values[*null] = Out{};
    end = *null;
  }
}

template <typename DType, typename Out>
Result<void> read_values(const Pages& pages, const ParquetColumn& c, RowCursor& cursor,
                         std::vector<Out>& out) {
  ValueDecoder<DType, Out> decoder(pages.descriptor, c.is_unsigned);
  make_room(out, std::clamp<std::int64_t>(pages.levels, 0, kMaxHint));
  const auto take = [&](const PageParts& page) -> Result<void> {
    const std::int64_t before = cursor.elements();
    PL_TRY(const auto taken, cursor.take(page));
    grow_values(out, before + taken.elements);
    PL_TRY_VOID(decoder.read(taken.values, out.data() + before));
    if (!cursor.nulls().empty()) spread(out.data() + before, taken.elements, cursor.nulls());
    return {};
  };
  PL_TRY_VOID(for_each_page(pages, c, decoder, take));
  PL_TRY_VOID(cursor.finish());
  out.resize(static_cast<std::size_t>(cursor.elements()));
  return {};
}

// list<list<bool>>: element i of an inner list is bit i of a mask.
class MaskBuilder {
 public:
  MaskBuilder(const ParquetColumn& c, RowCursor& cursor, std::vector<std::int64_t>& out)
      : c_(c), cursor_(cursor), out_(out) {
    out.clear();
  }

  Result<void> take(const std::vector<std::uint8_t>& rep, const std::vector<std::uint8_t>& def,
                    const bool* values) {
    for (std::size_t i = 0; i < def.size(); ++i) {
      if (def[i] > c_.max_def) return corrupt("levels that do not exist");
      if (rep[i] == 0) PL_TRY_VOID(cursor_.begin_row());
      if (cursor_.row() < 0) return corrupt("starts within a list");
      if (rep[i] < 2 && !begin_mask(def[i])) continue;
      if (out_.empty()) return corrupt("starts within a list");
      if (def[i] == c_.max_def) {
        add(*values++);
      } else if (def[i] >= c_.inner_list_def) {
        cursor_.note(RowFault::kNullInList, cursor_.row());
        add(false);
      }
    }
    return {};
  }

 private:
  // False when there is no mask here.
  bool begin_mask(int def) {
    if (def < c_.list_def) {
      if (def < c_.list_def - 1) cursor_.note(RowFault::kNull, cursor_.row());
      return false;
    }
    out_.push_back(0);
    bit_ = 0;
    cursor_.add_element();
    if (def < c_.inner_list_def - 1) cursor_.note(RowFault::kNullInList, cursor_.row());
    return true;
  }
  void add(bool value) {
    if (bit_ == 64) {
      cursor_.note(RowFault::kTooManyBools, cursor_.row());
    } else if (bit_ < 64 && value) {
      out_.back() = static_cast<std::int64_t>(static_cast<std::uint64_t>(out_.back()) |
                                              (std::uint64_t{1} << bit_));
    }
    ++bit_;
  }

  const ParquetColumn& c_;
  RowCursor& cursor_;
  std::vector<std::int64_t>& out_;
  std::int64_t bit_ = 0;
};

Result<void> read_masks(const Pages& pages, const ParquetColumn& c, RowCursor& cursor,
                        std::vector<std::int64_t>& out) {
  ValueDecoder<parquet::BooleanType, bool> decoder(pages.descriptor, false);
  MaskBuilder masks(c, cursor, out);
  auto& levels = scratch.levels;
  const auto take = [&](const PageParts& page) -> Result<void> {
    PL_TRY_VOID(unpack_levels(page.rep, levels.rep));
    PL_TRY_VOID(unpack_levels(page.def, levels.def));
    const auto n = std::count(levels.def.begin(), levels.def.end(), c.max_def);
    const auto values = std::make_unique<bool[]>(static_cast<std::size_t>(n));
    PL_TRY_VOID(decoder.read(n, values.get()));
    return masks.take(levels.rep, levels.def, values.get());
  };
  PL_TRY_VOID(for_each_page(pages, c, decoder, take));
  return cursor.finish();
}

// Numbers that are not finite become 0, their rows are noted. `offsets` are those of a list column.
void check_finite(std::vector<float>& values, int index, bool list,
                  const std::vector<std::int64_t>& offsets, RowIssues& issues) {
  // x - x is 0 exactly for finite x.
  float sum = 0.0F;
  const float* v = values.data();
  const std::size_t n = values.size();
#pragma omp simd reduction(+ : sum)
  for (std::size_t i = 0; i < n; ++i) sum += v[i] - v[i];
  if (sum == 0.0F) return;
  for (std::size_t i = 0; i < n; ++i) {
    if (std::isfinite(values[i])) continue;
    auto row = static_cast<std::int64_t>(i);
    if (list) row = std::upper_bound(offsets.begin(), offsets.end(), row) - offsets.begin() - 1;
    add_issue(issues, {row, index, RowFault::kNotFinite, 0, 0, values[i]});
    values[i] = 0.0F;
  }
}

// Gives every list the length that the other columns of its side have.
template <typename Out>
void fit_lists(const std::vector<std::int64_t>& own, const std::vector<std::int64_t>& wanted,
               int index, std::vector<Out>& values, RowIssues& issues) {
  if (own == wanted) return;
  auto& fitted = scratch.values<Out>();
  fitted.assign(static_cast<std::size_t>(wanted.back()), Out{});
  for (std::size_t r = 0; r + 1 < wanted.size(); ++r) {
    const std::int64_t found = own[r + 1] - own[r];
    const std::int64_t expected = wanted[r + 1] - wanted[r];
    std::copy_n(values.begin() + own[r], std::min(found, expected), fitted.begin() + wanted[r]);
    if (found == expected) continue;
    issues.push_back(
        {static_cast<std::int64_t>(r), index, RowFault::kOtherLength, found, expected});
  }
  values.assign(fitted.begin(), fitted.end());
}

// Rows of a lenient column that would be bad have unknown values.
void blank_rows(const RowIssues& excused, const std::vector<std::int64_t>& offsets, bool list,
                std::vector<float>& values) {
  for (const auto& issue : excused) {
    const std::int64_t first = list ? offsets[static_cast<std::size_t>(issue.row)] : issue.row;
    const std::int64_t last =
        list ? offsets[static_cast<std::size_t>(issue.row) + 1] : issue.row + 1;
    std::fill(values.begin() + first, values.begin() + last,
              std::numeric_limits<float>::quiet_NaN());
  }
}

}  // namespace

Result<void> read_column(parquet::RowGroupReader& group, const ParquetColumn& c,
                         const ColumnTarget& to, RowIssues& issues) {
  const bool list = c.max_rep > 0;
  auto& offsets = list && to.first ? *to.offsets : scratch.offsets;
  const auto* metadata = group.metadata();
  const auto* descriptor = metadata->schema()->Column(c.leaf);
  const auto reader = group.GetColumnPageReader(c.leaf);
  const Pages pages{*reader, descriptor, metadata->ColumnChunk(c.leaf)->num_values()};
  RowIssues excused;
  RowCursor cursor(c, to.index, to.rows, offsets, scratch.levels,
                   c.wanted.lenient ? excused : issues);
  const auto read = [&](auto type, auto& out) {
    return read_values<decltype(type)>(pages, c, cursor, out);
  };
  auto& ints = to.values->ints;
  auto& floats = to.values->floats;
  const auto type = descriptor->physical_type();
  if (c.wanted.element != Element::kFloat) {
    if (c.is_bools) {
      PL_TRY_VOID(read_masks(pages, c, cursor, ints));
    } else if (type == Type::INT32) {
      PL_TRY_VOID(read(parquet::Int32Type(), ints));
    } else {
      PL_TRY_VOID(read(parquet::Int64Type(), ints));
    }
    if (list && !to.first) fit_lists(offsets, *to.offsets, to.index, ints, issues);
    return {};
  }
  switch (type) {
    case Type::FLOAT:
      PL_TRY_VOID(read(parquet::FloatType(), floats));
      break;
    case Type::DOUBLE:
      PL_TRY_VOID(read(parquet::DoubleType(), floats));
      break;
    case Type::INT32:
      PL_TRY_VOID(read(parquet::Int32Type(), floats));
      break;
    default:
      PL_TRY_VOID(read(parquet::Int64Type(), floats));
      break;
  }
  if (c.wanted.lenient) {
    if (list && !to.first) fit_lists(offsets, *to.offsets, to.index, floats, excused);
    blank_rows(excused, list ? *to.offsets : offsets, list, floats);
    return {};
  }
  check_finite(floats, to.index, list, offsets, issues);
  if (list && !to.first) fit_lists(offsets, *to.offsets, to.index, floats, issues);
  return {};
}

}  // namespace paceline::data
