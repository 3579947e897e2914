// Reading one checkpoint through, a difference with its base: restore, load and verify are this.
// Private to the room. Blocking; one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/file_ops.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/tables.hpp"
#include "core/error.hpp"

namespace paceline::checkpoint {

inline constexpr std::uint64_t kMaxStateBytes = std::uint64_t{64} << 20;

// Keeps nothing: what is read is only verified.
class Discard : public Receiver {
 public:
  Result<void> state(const nlohmann::json&, const std::filesystem::path&) override { return {}; }
  Result<std::optional<std::span<std::byte>>> tensor(Part, const TensorInfo&,
                                                     const std::filesystem::path&) override {
    return std::optional<std::span<std::byte>>();
  }
};

// state.json of a checkpoint, compared with its hash before it is parsed.
Result<nlohmann::json> read_state(FileOps& ops, const std::filesystem::path& checkpoint,
                                  const Manifest& manifest);

// What the last error was about.
enum class Blame : std::uint8_t { kCheckpoint, kBase, kReceiver };

class Restoration {
 public:
  Restoration(FileOps& ops, Receiver& receiver) : ops_(ops), receiver_(receiver) {}

  // May be called again, for another checkpoint. Verifies every byte that it hands over.
  Result<Restored> read(const std::filesystem::path& checkpoint);
  // Verifies every byte; the tables of a base that this object already read are not read again.
  Result<Restored> verify(const std::filesystem::path& checkpoint);
  // Manifests and sizes.
  Result<Restored> look_at(const std::filesystem::path& checkpoint);
  Blame blame() const { return blame_; }
  // That the manifest last read names.
  const std::optional<Base>& base() const { return result_.base; }

 private:
  enum class Depth : std::uint8_t { kSizes, kUnreadBases, kAll };
  Result<Restored> run(const std::filesystem::path& checkpoint, Depth depth);
  Result<void> files(const std::filesystem::path& checkpoint, const Manifest& manifest,
                     Depth depth);
  Result<void> find_base(const std::filesystem::path& checkpoint, const Base& base);
  Result<void> state(const std::filesystem::path& checkpoint, const Manifest& manifest);
  Result<void> dense(const std::filesystem::path& checkpoint, const Manifest& manifest, Part part);
  Result<void> full_tables(const std::filesystem::path& checkpoint, const Manifest& manifest,
                           bool read);
  Result<void> difference(const std::filesystem::path& checkpoint, const Manifest& manifest);
  Result<std::optional<std::span<std::byte>>> memory_for(Part part, const TensorInfo& info,
                                                         InputFile& in, const Manifest& manifest);
  Result<void> file_done(InputFile& in, const Manifest& manifest);

  FileOps& ops_;
  Receiver& receiver_;
  Blame blame_ = Blame::kCheckpoint;
  Restored result_;
  std::optional<Manifest> base_;
  std::vector<TableTensor> tables_;
  std::int64_t table_rows_ = 0;
  std::vector<Base> read_bases_;                            // whose tables were found right
  std::vector<std::pair<Base, std::string>> broken_bases_;  // and wrong, with why
};

}  // namespace paceline::checkpoint
