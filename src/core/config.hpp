// Reads a TOML configuration so that nothing in it is ignored: every key is asked for by the room
// that owns it, with its type, default and limits; what nobody asked for is refused at the end with
// the nearest known key. The values that were used, defaults included, can be written out again.
//
//   PL_TRY(auto config, Config::load("train.toml"));
//   PL_TRY_VOID(config.override_with("train.epochs=3"));
//   PL_TRY(auto epochs, config.get_int("train.epochs", 1, {.min = 1}));
//   PL_TRY_VOID(config.finish());
//
// Every error has Code::kInvalidArgument and names the file, the key, what was found and what is
// allowed. Not thread-safe; used before any work starts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace paceline {

struct IntRange {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};

struct NumberRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

class Config {
 public:
  static Result<Config> load(const std::filesystem::path& file);
  static Result<Config> parse(std::string_view text, std::string name,
                              std::filesystem::path base_dir = ".");
  Config(Config&&) noexcept;
  Config& operator=(Config&&) noexcept;
  ~Config();

  // "section.key=value"; the value is TOML, or else taken as a string. `a[0].b` reaches into
  // arrays of tables. Call before any get.
  Result<void> override_with(std::string_view assignment);

  // Keys are dotted: "train.epochs", "features[2].rows". Without a default the key is required.
  Result<std::int64_t> get_int(std::string_view key, std::optional<std::int64_t> fallback = {},
                               IntRange allowed = {});
  // Numbers are finite.
  Result<double> get_number(std::string_view key, std::optional<double> fallback = {},
                            NumberRange allowed = {});
  Result<bool> get_bool(std::string_view key, std::optional<bool> fallback = {});
  Result<std::string> get_string(std::string_view key, std::optional<std::string> fallback = {});
  // One of `allowed`.
  Result<std::string> get_choice(std::string_view key, const std::vector<std::string>& allowed,
                                 std::optional<std::string> fallback = {});
  // A string or a list of strings.
  Result<std::vector<std::string>> get_strings(
      std::string_view key, std::optional<std::vector<std::string>> fallback = {});
  // A list of numbers.
  Result<std::vector<double>> get_numbers(std::string_view key,
                                          std::optional<std::vector<double>> fallback = {});
  // A path, made absolute against the folder of the config file. Paths with a scheme stay as they
  // are.
  Result<std::string> get_path(std::string_view key, std::optional<std::string> fallback = {});
  Result<std::vector<std::string>> get_paths(std::string_view key,
                                             std::optional<std::vector<std::string>> fallback = {});

  bool has(std::string_view key) const;
  bool is_string(std::string_view key) const;
  // Number of tables under [[key]]; 0 when absent.
  Result<std::size_t> table_count(std::string_view key);

  // An error that names this file and `key`: for conditions that span keys.
  Error invalid(std::string_view key, std::string_view found, std::string_view allowed) const;

  // Refuses every key that was present but never asked for, naming the nearest known one.
  Result<void> finish() const;

  const std::string& name() const;
  std::filesystem::path base_dir() const;

  // Every key that was asked for with the value used, as TOML that reads back to the same values.
  std::string resolved() const;
  // The same as (key, value-as-TOML) pairs, in the order asked for.
  std::vector<std::pair<std::string, std::string>> values() const;

 private:
  struct Impl;
  explicit Config(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The candidate with the smallest edit distance to `word`; empty when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace paceline
