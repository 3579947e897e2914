#include "checkpoint/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "checkpoint/json_text.hpp"

namespace paceline::checkpoint {
namespace fs = std::filesystem;
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

// The format's own limit.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::string_view kMetadata = "__metadata__";

struct DtypeName {
  Dtype dtype;
  std::string_view name;
  std::size_t bytes;
};
constexpr DtypeName kDtypes[] = {{Dtype::kF32, "F32", 4},
                                 {Dtype::kBF16, "BF16", 2},
                                 {Dtype::kI64, "I64", 8},
                                 {Dtype::kI32, "I32", 4},
                                 {Dtype::kU8, "U8", 1}};

const DtypeName& entry_of(Dtype dtype) {
  for (const auto& d : kDtypes) {
    if (d.dtype == dtype) return d;
  }
  PL_CHECK(false, "a dtype of the enumeration");
  return kDtypes[0];
}

std::vector<const TensorView*> file_order(std::span<const TensorView> tensors) {
  std::vector<const TensorView*> order;
  for (const auto& t : tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
    const auto key = [](const TensorView* t) {
      return std::tuple(-static_cast<int>(size_of(t->dtype)), t->name != kRowIndex,
                        std::string_view(t->name));
    };
    return key(a) < key(b);
  });
  for (const auto& t : tensors) {
    PL_CHECK(t.name != kMetadata, "a tensor name that the format does not reserve");
    std::uint64_t bytes = size_of(t.dtype);
    for (const auto n : t.shape) {
      PL_CHECK(n >= 0, "no negative dimension: " + t.name);
      bytes *= static_cast<std::uint64_t>(n);
    }
    PL_CHECK(bytes == t.bytes.size(), "as many bytes as the shape says: " + t.name);
  }
  return order;
}

// Length and header, padded to a multiple of 8.
Result<std::string> header_of(const std::vector<const TensorView*>& order,
                              const Metadata& metadata) {
  auto json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json[std::string(kMetadata)] = metadata;
  std::uint64_t offset = 0;
  for (const TensorView* t : order) {
    const std::uint64_t end = offset + t->bytes.size();
    PL_CHECK(!json.contains(t->name), "tensor names are unique: " + t->name);
    json[t->name] = {
        {"dtype", entry_of(t->dtype).name}, {"shape", t->shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const nlohmann::json::exception& e) {
    return Error(Code::kInvalidArgument,
                 fmt::format("a name or metadata cannot be written: {}", e.what()));
  }
  text.resize(align_up(text.size(), 8), ' ');
  PL_CHECK(text.size() <= kMaxHeaderBytes, "a header within the limit of the format");
  const std::uint64_t length = text.size();
  std::string out(sizeof(length), '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  return out + text;
}

struct Entry {
  TensorInfo info;
  std::uint64_t begin, end;
};

Error corrupt(const fs::path& file, const std::string& what) {
  return Error(Code::kCorruptData, fmt::format("{}: {}", file.string(), what));
}

Result<Entry> parse_entry(const fs::path& file, const std::string& name, const nlohmann::json& j) {
  const auto bad = [&](std::string_view what) {
    return corrupt(file, fmt::format("tensor {}: {}", name, what));
  };
  if (!j.is_object() || !j.contains("dtype") || !j.contains("shape") ||
      !j.contains("data_offsets")) {
    return bad("dtype, shape and data_offsets are needed");
  }
  const auto &dtype = j.at("dtype"), &shape = j.at("shape"), &offsets = j.at("data_offsets");
  Entry entry{{name, Dtype::kF32, {}}, 0, 0};
  const auto known = std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const DtypeName& d) {
    return dtype.is_string() && dtype.get_ref<const std::string&>() == d.name;
  });
  if (known == std::end(kDtypes)) {
    return bad(fmt::format("dtype {} is not one of F32, BF16, I64, I32, U8", dtype.dump()));
  }
  entry.info.dtype = known->dtype;
  if (!shape.is_array()) return bad("shape is not a list");
  std::optional<std::uint64_t> bytes = known->bytes;
  for (const auto& n : shape) {
    if (!n.is_number_unsigned()) return bad("a dimension is not a whole number >= 0");
    const auto size = n.get<std::uint64_t>();
    if (!product(size, 1)) return bad("a dimension is too large");
    entry.info.shape.push_back(static_cast<std::int64_t>(size));
    if (bytes) bytes = product(*bytes, size);
  }
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return bad("data_offsets are not two whole numbers >= 0");
  }
  entry.begin = offsets[0].get<std::uint64_t>();
  entry.end = offsets[1].get<std::uint64_t>();
  if (!bytes || entry.end < entry.begin || entry.end - entry.begin != *bytes) {
    return bad("data_offsets do not fit dtype and shape");
  }
  return entry;
}

Result<Metadata> parse_metadata(const fs::path& file, const nlohmann::json& j) {
  Metadata metadata;
  if (!j.is_object()) return corrupt(file, "__metadata__ is not a JSON object");
  for (const auto& [key, value] : j.items()) {
    if (!value.is_string()) return corrupt(file, "a value of __metadata__ is not a string");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// The entries in the order of their data, which they cover without holes or overlaps.
Result<SafetensorsHeader> parse_header(const fs::path& file, const std::string& text,
                                       std::uint64_t data_bytes) {
  const auto parsed = parse_json(text);
  if (!parsed || !parsed->is_object()) {
    return corrupt(file, parsed ? "the header is not a JSON object"
                                : "the header is not a JSON object: " + parsed.error().message());
  }
  SafetensorsHeader header;
  std::vector<Entry> entries;
  for (const auto& [name, value] : parsed->items()) {
    if (name == kMetadata) {
      PL_TRY(header.metadata, parse_metadata(file, value));
      continue;
    }
    PL_TRY(auto entry, parse_entry(file, name, value));
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.info.name) < std::tie(b.begin, b.end, b.info.name);
  });
  std::uint64_t at = 0;
  for (auto& e : entries) {
    if (e.begin != at) {
      return corrupt(file, fmt::format("tensor {} begins at {}, the one before ends at {}",
                                       e.info.name, e.begin, at));
    }
    at = e.end;
    header.tensors.push_back(std::move(e.info));
  }
  if (at != data_bytes) {
    return corrupt(file, fmt::format("the header describes {} bytes of data, the file has {}", at,
                                     data_bytes));
  }
  return header;
}

}  // namespace

std::size_t size_of(Dtype dtype) { return entry_of(dtype).bytes; }
std::string_view name_of(Dtype dtype) { return entry_of(dtype).name; }

// a x b, or absent above 2^63 - 1.
std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (b != 0 && a > kMax / b) return {};
  return a * b;
}

std::optional<std::uint64_t> bytes_of(const TensorInfo& tensor) {
  std::optional<std::uint64_t> bytes = size_of(tensor.dtype);
  for (const auto n : tensor.shape) {
    if (bytes) bytes = product(*bytes, static_cast<std::uint64_t>(n));
  }
  return bytes;
}

Result<FileRecord> write_tensors(FileOps& ops, const fs::path& file,
                                 std::span<const TensorView> tensors, const Metadata& metadata) {
  const auto order = file_order(tensors);
  PL_TRY(const auto header, header_of(order, metadata));
  PL_TRY(auto out, OutputFile::create(ops, file));
  PL_TRY_VOID(out.write(std::as_bytes(std::span(header))));
  for (const TensorView* t : order) PL_TRY_VOID(out.write(t->bytes));
  return out.finish();
}

Result<SafetensorsHeader> read_header(InputFile& file) {
  std::uint64_t length = 0;
  if (file.size() < sizeof(length)) {
    return corrupt(file.path(), fmt::format("{} bytes are too few for a header", file.size()));
  }
  PL_TRY_VOID(file.read(std::as_writable_bytes(std::span(&length, 1))));
  if (length > kMaxHeaderBytes || length > file.size() - sizeof(length)) {
    return corrupt(file.path(), fmt::format("a header of {} bytes does not fit a file of {} bytes",
                                            length, file.size()));
  }
  std::string text(length, '\0');
  PL_TRY_VOID(file.read(std::as_writable_bytes(std::span(text))));
  return parse_header(file.path(), text, file.size() - sizeof(length) - length);
}

Result<void> write_safetensors(const fs::path& file, std::span<const TensorView> tensors,
                               const Metadata& metadata) {
  PL_TRY_VOID(write_tensors(posix_file_ops(), file, tensors, metadata));
  return {};
}

Result<std::vector<Tensor>> read_safetensors(const fs::path& file) {
  try {
    PL_TRY(auto in, InputFile::open(posix_file_ops(), file, Links::kFollow));
    PL_TRY(auto header, read_header(in));
    std::vector<Tensor> tensors;
    for (auto& info : header.tensors) {
      HostBuffer bytes(bytes_of(info).value());
      PL_TRY_VOID(in.read({bytes.data(), bytes.size_bytes()}));
      tensors.push_back(
          {std::move(info.name), info.dtype, std::move(info.shape), std::move(bytes)});
    }
    return tensors;
  } catch (const std::bad_alloc&) {
    return Error(Code::kOutOfMemory,
                 fmt::format("{}: what it holds does not fit into memory", file.string()));
  }
}

Result<SafetensorsHeader> read_safetensors_header(const fs::path& file) {
  try {
    PL_TRY(auto in, InputFile::open(posix_file_ops(), file, Links::kFollow));
    return read_header(in);
  } catch (const std::bad_alloc&) {
    return Error(Code::kOutOfMemory,
                 fmt::format("{}: its header does not fit into memory", file.string()));
  }
}

}  // namespace paceline::checkpoint
