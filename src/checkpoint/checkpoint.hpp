// State files that survive a kill at any instruction: written to a hidden directory, every file
// fsynced, renamed, parent fsynced, `latest` replaced atomically.
//
//   <dir>/step_<12 digits>/  model.safetensors optimizer.safetensors tables.safetensors (or parts)
//                            state.json  MANIFEST.json (size and XXH3 of each file and of itself)
//   <dir>/latest             link to the newest; for people, nothing here reads it
//
// A checkpoint is full, or a difference: its tables are then the rows that changed since a full one
// in the same directory, its base, which its manifest names by step and hash.
// A checkpoint is used only when it is complete and verified. One that is found broken is set aside
// as step_X.corrupt-N, so that its step can be written again without overwriting anything.
// Files are in the safetensors format, readable by its Python library.
//
// One process writes a directory at a time (the run directory's lock); any number may read.
// All calls block on the disk. Errors: kIo with path and the operating system's text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/buffer.hpp"
#include "core/error.hpp"

namespace paceline::checkpoint {

enum class Dtype : std::uint8_t { kF32, kBF16, kI64, kI32, kU8 };
std::size_t size_of(Dtype dtype);
std::string_view name_of(Dtype dtype);  // as the format spells it: "F32"

// A tensor to be written; the memory stays the caller's and must not change during the call.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;
  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

struct Tensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;
  HostBuffer bytes;
};

// XXH3-64, seed 0: what manifests hold of each file.
std::uint64_t hash_of(std::string_view text);

using Metadata = std::map<std::string, std::string>;  // `__metadata__` of a file

// One safetensors file, synced. Names are unique and sizes fit shapes (checked). An existing file
// is an error of Code::kIo, never overwritten; a failed write leaves a file that does not read
// back.
Result<void> write_safetensors(const std::filesystem::path& file,
                               std::span<const TensorView> tensors, const Metadata& metadata = {});

// The same, but the file appears whole or not at all, and may take another's place; the bytes it
// has. A link is replaced, not followed. A failed write leaves nothing behind, a killed one a
// hidden `.<name>.tmp-*` beside it; an error of the last sync leaves the whole new file.
enum class Existing : std::uint8_t { kRefuse, kReplace };
Result<std::uint64_t> write_whole_safetensors(const std::filesystem::path& file,
                                              std::span<const TensorView> tensors,
                                              const Metadata& metadata, Existing existing);
// What that would refuse before it writes: kInvalidArgument for a file that is there, for what is
// no regular file and for a place in a checkpoint, kNotFound for a directory that is not there.
Result<void> check_target(const std::filesystem::path& file, Existing existing);

// In the order of the file. kNotFound, kIo, kOutOfMemory, or kCorruptData: every length, offset and
// shape is checked against the file before it is used.
Result<std::vector<Tensor>> read_safetensors(const std::filesystem::path& file);

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of the file
  Metadata metadata;
};
// The same checks, without reading the data.
Result<SafetensorsHeader> read_safetensors_header(const std::filesystem::path& file);

// A checkpoint that others may be a difference to.
struct Base {
  std::int64_t step = 0;
  std::uint64_t manifest_xxh3 = 0;  // the hash that its manifest ends with
  friend bool operator==(const Base&, const Base&) = default;
};

// Says that tables are written as the rows that changed since `base`, a full checkpoint in the same
// directory.
struct TableDelta {
  Base base;
  std::span<const std::int64_t> rows;  // ascending; entry i of each tensor is row rows[i]
  std::int64_t table_rows = 0;         // of the whole table
};

struct Content {
  std::int64_t step = 0;
  std::vector<TensorView> model, optimizer;
  std::vector<TensorView> tables;  // the first dimension of all is the table's rows
  nlohmann::json state;
  std::optional<TableDelta> delta;
  std::uint64_t shard_bytes = std::uint64_t{1} << 30;  // of a file of table rows, about
};

struct Published {
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  Base id;  // of this checkpoint
};

enum class Part : std::uint8_t { kModel, kOptimizer, kTables };

// Where a restore puts what it reads, so that nothing is held twice. Its own errors end the
// restore, are returned as they are and never make a checkpoint a broken one. When a checkpoint
// turns out to be broken half-way the calls begin again with the one before: all memory is written
// again. `from` is the file, for messages.
class Receiver {
 public:
  virtual ~Receiver() = default;
  // state.json, verified, before any tensor.
  virtual Result<void> state(const nlohmann::json& state, const std::filesystem::path& from) = 0;
  // The whole tensor, also where files hold parts of it. Memory of exactly its bytes; absent:
  // verified and not kept.
  virtual Result<std::optional<std::span<std::byte>>> tensor(Part part, const TensorInfo& tensor,
                                                             const std::filesystem::path& from) = 0;
};

// A newer checkpoint that was not used.
struct PassedOver {
  std::filesystem::path path;
  std::string why;
};

struct Restored {
  std::filesystem::path path;
  Base id;                  // its step, the hash of its manifest
  std::uint64_t bytes = 0;  // read, the base included
  nlohmann::json state;
  std::optional<Base> base;             // of a difference
  std::vector<std::int64_t> rows;       // of a difference: ascending
  std::vector<PassedOver> passed_over;  // newest first
};

struct Loaded {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::vector<Tensor> model, optimizer, tables;
  nlohmann::json state;
};

struct Info {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  double age_s = 0.0;
  bool complete = false;
  std::string why;           // when not complete: what is missing or differs
  std::optional<Base> base;  // of a difference
};

// Writes and publishes, without a copy of the tensors. An existing complete checkpoint of that step
// is never overwritten: if it verifies, this is an error of Code::kInvalidArgument; if it is broken
// it is set aside first. On any failure nothing is published and the hidden directory is removed.
// kInvalidArgument also for a step outside 0 .. 10^12 - 1 and for names or state that are not
// UTF-8.
Result<Published> publish(const std::filesystem::path& dir, const Content& content);

// Sorted by step; empty when there is no such directory. `deep` reads every file and compares its
// hash; otherwise the manifest and sizes only. Those set aside are not listed.
Result<std::vector<Info>> list(const std::filesystem::path& dir, bool deep);
// One of these; verify() is deep. kNotFound when there is no such directory.
Result<Info> look_at(const std::filesystem::path& checkpoint);
Result<Info> verify(const std::filesystem::path& checkpoint);
// Directories of `dir` that were set aside, by name.
std::vector<std::filesystem::path> those_set_aside(const std::filesystem::path& dir);
// The step that `latest` names, whether it is there or not.
std::optional<std::int64_t> latest_step(const std::filesystem::path& dir);

struct FileInfo {
  std::string name;
  std::uint64_t bytes = 0, xxh3 = 0;
};
struct Description {
  Base id;
  int format_version = 0;       // of the manifest
  std::optional<Base> base;     // of a difference,
  std::int64_t table_rows = 0;  // of the whole table,
  std::int64_t held_rows = 0;   // and how many of them its files hold
  nlohmann::json state;
  std::vector<FileInfo> files;  // MANIFEST.json included
  std::vector<TensorInfo> model, optimizer;
  std::vector<TensorInfo> tables;  // with held_rows; without the row index
};
// What is inside, from manifest, state and headers; tensors are not read. kNotFound, kCorruptData
// for what does not fit each other, kInvalidArgument for a symbolic link.
Result<Description> describe(const std::filesystem::path& checkpoint);

// The newest that verifies, a difference together with its base. Newer ones are passed over with a
// warning: broken ones are set aside, or only skipped where the directory is not writable; intact
// differences to a base that is missing, broken or another one stay, as do symbolic links, which
// are not followed. kNotFound when there is none at all, kCorruptData when none can be used; the
// text says why of each. What could not be read (kIo, kOutOfMemory) or was written by a newer
// version (kUnavailable) is an error and stays in place: nobody knows yet that it is broken.
Result<Restored> restore_newest(const std::filesystem::path& dir, Receiver& receiver);
// Every byte that is handed over was verified once this returns without an error; before that, not.
// kNotFound, kCorruptData (also for what is wrong with the base), and as above. A path that is a
// symbolic link is kInvalidArgument, unless it is `latest` and names a step of its directory.
Result<Restored> restore(const std::filesystem::path& checkpoint, Receiver& receiver);
// The same into memory of its own.
Result<Loaded> load_newest(const std::filesystem::path& dir);
Result<Loaded> load(const std::filesystem::path& checkpoint);
// Only the tensors that are wanted; every byte is verified.
using Wanted = std::function<bool(Part part, const TensorInfo& tensor)>;
Result<Loaded> load(const std::filesystem::path& checkpoint, const Wanted& wanted);

struct Retention {
  int keep_last = 3;            // newest complete ones, >= 1
  std::int64_t keep_every = 0;  // > 0: the first complete one at or after each multiple stays too
};
// Steps that stay whatever the retention says, and why, in words.
using KeptToo = std::map<std::int64_t, std::string>;
struct Kept {
  Info info;
  std::string why;  // in words; one that is not complete is kept too
};
struct PrunePlan {
  std::vector<Info> removed;                     // oldest first
  std::vector<Kept> kept;                        // by step
  std::vector<std::filesystem::path> leftovers;  // hidden, of saves interrupted or under way
  std::uint64_t bytes = 0;                       // of removed and leftovers
};
struct Pruned {
  int checkpoints = 0, leftovers = 0;
  std::uint64_t bytes = 0;  // freed
};
// What prune() would do now. A base stays as long as a difference to it.
Result<PrunePlan> plan_prune(const std::filesystem::path& dir, const Retention& retention,
                             const KeptToo& too = {});
// Removes those, and hidden leftovers of interrupted saves. Checkpoints set aside are kept.
Result<Pruned> prune(const std::filesystem::path& dir, const Retention& retention,
                     const KeptToo& too = {});
// Removes leftovers alone: what saves of this directory's dead processes left behind.
Result<Pruned> clean_leftovers(const std::filesystem::path& dir);

}  // namespace paceline::checkpoint
