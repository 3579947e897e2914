// One checkpoint being written, part by part, so that what a part was copied from can be reused as
// soon as it is on disk. The first error of a call ends it. Private to the room. Blocking; one
// thread.
//
//   begin -> write_tables -> write_dense -> finish       or, at any point, the destructor:
//                                                        nothing is published, its space is free
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/file_ops.hpp"
#include "checkpoint/manifest.hpp"
#include "core/error.hpp"

namespace paceline::checkpoint {

class Publication {
 public:
  // Creates what is missing of `dir` and a hidden directory in it. An existing complete checkpoint
  // of that step is kInvalidArgument; what cannot be used, a broken one or a difference without its
  // base, is set aside.
  static Result<Publication> begin(FileOps& ops, const std::filesystem::path& dir,
                                   std::int64_t step);
  Publication(Publication&& other) noexcept;
  Publication& operator=(Publication&&) = delete;
  ~Publication();

  // Tensors with one entry per table row, cut into shards of about `shard_bytes`. With `delta` they
  // hold its rows only; its base must be there (manifest and sizes are looked at).
  Result<void> write_tables(std::span<const TensorView> tables, const TableDelta* delta,
                            std::uint64_t shard_bytes);
  Result<void> write_dense(std::span<const TensorView> model,
                           std::span<const TensorView> optimizer);
  // Writes state and manifest, publishes.
  Result<Published> finish(const nlohmann::json& state);

 private:
  Publication(FileOps& ops, std::filesystem::path dir, std::int64_t step,
              std::filesystem::path hidden);
  Result<void> check_base(std::span<const TensorView> tables, const TableDelta& delta) const;
  Result<void> write_rest(const std::string& state);
  std::string what() const;

  FileOps* ops_;
  std::filesystem::path dir_;
  std::filesystem::path hidden_;  // empty once published or given up
  Manifest manifest_;
};

}  // namespace paceline::checkpoint
