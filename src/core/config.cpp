#include "core/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "core/config_text.hpp"

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif
// What the parser asserts, or lets the compiler assume, does not hold for every text (a line that
// ends within "[["); the checks that follow are enough.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

namespace paceline {
namespace fs = std::filesystem;
namespace {

// One step of a dotted key: a name, or an index into an array.
struct Step {
  std::string name;
  std::size_t index = 0;
  bool is_index = false;
};

std::optional<std::vector<Step>> split_key(std::string_view key) {
  std::vector<Step> steps;
  std::size_t i = 0;
  while (i < key.size()) {
    if (key[i] == '[') {
      const std::size_t end = key.find(']', i);
      Step step;
      step.is_index = true;
      if (end == std::string_view::npos || steps.empty()) return {};
      const auto parsed = std::from_chars(key.data() + i + 1, key.data() + end, step.index);
      if (parsed.ec != std::errc{} || parsed.ptr != key.data() + end) return {};
      steps.push_back(step);
      i = end + 1;
      if (i < key.size() && key[i] == '.') ++i;
    } else {
      const std::size_t end = std::min(key.find_first_of(".[", i), key.size());
      if (end == i) return {};
      steps.push_back({std::string(key.substr(i, end - i)), 0, false});
      i = end < key.size() && key[end] == '.' ? end + 1 : end;
    }
  }
  if (steps.empty() || key.back() == '.') return {};
  return steps;
}

const toml::node* step_into(const toml::node* node, const Step& step) {
  if (node == nullptr) return nullptr;
  if (step.is_index) {
    const auto* array = node->as_array();
    return array != nullptr && step.index < array->size() ? array->get(step.index) : nullptr;
  }
  const auto* table = node->as_table();
  return table != nullptr ? table->get(step.name) : nullptr;
}

const toml::node* find(const toml::table& root, std::string_view key) {
  const auto steps = split_key(key);
  if (!steps) return nullptr;
  const toml::node* node = &root;
  for (const auto& step : *steps) node = step_into(node, step);
  return node;
}

std::string describe(const toml::node& node) {
  if (const auto* s = node.as_string()) return string_text(s->get()) + " (string)";
  if (const auto* i = node.as_integer()) return std::to_string(i->get()) + " (integer)";
  if (const auto* f = node.as_floating_point()) return number_text(f->get()) + " (number)";
  if (const auto* b = node.as_boolean()) return b->get() ? "true (boolean)" : "false (boolean)";
  if (const auto* a = node.as_array()) return fmt::format("a list of {}", a->size());
  if (node.is_table()) return "a table";
  return "a date or time";
}

std::string range_text(std::string_view what, const std::string& min, const std::string& max) {
  if (!min.empty() && !max.empty()) return fmt::format("{} from {} to {}", what, min, max);
  if (!min.empty()) return fmt::format("{} >= {}", what, min);
  if (!max.empty()) return fmt::format("{} <= {}", what, max);
  return std::string(what);
}

std::string allowed_text(IntRange r) {
  const IntRange all;
  return range_text("an integer", r.min == all.min ? "" : std::to_string(r.min),
                    r.max == all.max ? "" : std::to_string(r.max));
}

std::string allowed_text(NumberRange r) {
  return range_text("a number", std::isinf(r.min) ? "" : fmt::format("{}", r.min),
                    std::isinf(r.max) ? "" : fmt::format("{}", r.max));
}

bool valid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i++]);
    const int more = lead < 0x80                   ? 0
                     : lead >= 0xC2 && lead < 0xE0 ? 1
                     : lead >= 0xE0 && lead < 0xF0 ? 2
                     : lead >= 0xF0 && lead < 0xF5 ? 3
                                                   : -1;
    if (more < 0) return false;
    for (int k = 0; k < more; ++k, ++i) {
      if (i >= text.size() || (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return false;
    }
  }
  return true;
}

bool has_scheme(const std::string& path) { return path.find("://") != std::string::npos; }

}  // namespace

struct Config::Impl {
  std::string name;
  fs::path base_dir;
  toml::table root;
  // What was asked for and the value used, in order; a key asked for twice counts once.
  std::vector<std::pair<std::string, std::string>> used;
  std::set<std::string, std::less<>> asked;
  TableCounts tables;

  std::set<std::string, std::less<>> overridden;

  std::string place(std::string_view key) const {
    if (overridden.contains(key)) return "--set";
    const toml::node* node = paceline::find(root, key);
    const auto line = node != nullptr ? node->source().begin.line : 0;
    return line > 0 ? fmt::format("{}:{}", name, line) : name;
  }

  Error invalid(std::string_view key, std::string_view found, std::string_view allowed) const {
    return Error(Code::kInvalidArgument,
                 fmt::format("{}: key {}: found {}, allowed: {}", place(key), key, found, allowed));
  }

  void note(std::string_view key, std::string value) {
    if (asked.emplace(key).second) used.emplace_back(std::string(key), std::move(value));
  }

  // The node of `key`. Absent: null when there is a fallback, else an error.
  Result<const toml::node*> want(std::string_view key, bool optional, std::string_view allowed) {
    const toml::node* node = paceline::find(root, key);
    if (node == nullptr && !optional) {
      return Error(Code::kInvalidArgument,
                   fmt::format("{}: key {} is missing; allowed: {}", name, key, allowed));
    }
    return node;
  }

  // Paths are written into files that must be UTF-8.
  Result<std::string> absolute(std::string_view key, const std::string& path) const {
    PL_TRY(std::string result, absolute(path));
    if (!valid_utf8(result)) {
      return Error(
          Code::kInvalidArgument,
          fmt::format("{}: key {}: the path is not valid UTF-8; allowed: UTF-8 names", name, key));
    }
    return result;
  }
  Result<std::string> absolute(const std::string& path) const {
    if (path.empty() || has_scheme(path) || fs::path(path).is_absolute()) return path;
    std::error_code error;
    const fs::path base = fs::absolute(base_dir, error);
    return (base / path).lexically_normal().string();
  }

  void collect_unknown(const toml::node& node, const std::string& key,
                       std::vector<std::string>& unknown) const;
  bool known_below(const std::string& prefix) const;
  Result<void> assign(const std::string& key, const std::vector<Step>& steps,
                      const toml::node& value);
};

Config::Config(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Config::Config(Config&&) noexcept = default;
Config& Config::operator=(Config&&) noexcept = default;
Config::~Config() = default;

Result<Config> Config::load(const fs::path& file) {
  std::error_code ignored;
  if (fs::is_directory(file, ignored)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} is a directory, not a config file", file.string()));
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    return Error(Code::kInvalidArgument,
                 fmt::format("cannot read the config file {}", file.string()));
  }
  std::ostringstream text;
  text << in.rdbuf();
  const fs::path base = file.has_parent_path() ? file.parent_path() : fs::path(".");
  return parse(text.str(), file.string(), base);
}

Result<Config> Config::parse(std::string_view text, std::string name, fs::path base_dir) {
  auto impl = std::make_unique<Impl>();
  impl->name = std::move(name);
  impl->base_dir = std::move(base_dir);
  try {
    impl->root = toml::parse(text, std::string_view(impl->name));
  } catch (const toml::parse_error& e) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{}:{}:{}: not valid TOML: {}", impl->name, e.source().begin.line,
                             e.source().begin.column, e.description()));
  }
  return Config(std::move(impl));
}

Result<void> Config::Impl::assign(const std::string& key, const std::vector<Step>& steps,
                                  const toml::node& value) {
  toml::node* node = &root;
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    auto* next = const_cast<toml::node*>(step_into(node, steps[i]));
    if (next == nullptr && !steps[i].is_index && node->is_table()) {
      node->as_table()->insert(steps[i].name, toml::table{});
      next = node->as_table()->get(steps[i].name);
    }
    if (next == nullptr) {
      return Error(Code::kInvalidArgument,
                   fmt::format("--set {}: the config has no such entry to change", key));
    }
    node = next;
  }
  const Step& last = steps.back();
  if (last.is_index || !node->is_table()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--set {}: allowed: section.key=value or section[0].key=value", key));
  }
  value.visit([&](const auto& typed) { node->as_table()->insert_or_assign(last.name, typed); });
  overridden.insert(key);
  return {};
}

Result<void> Config::override_with(std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  const std::string key(assignment.substr(0, std::min(equals, assignment.size())));
  const auto steps = split_key(key);
  if (equals == std::string_view::npos || !steps) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--set {}: allowed: section.key=value", assignment));
  }
  const std::string text(assignment.substr(equals + 1));
  try {
    const toml::table parsed = toml::parse("value = " + text, std::string_view("--set " + key));
    if (const toml::node* value = parsed.get("value"); value != nullptr && parsed.size() == 1) {
      return impl_->assign(key, *steps, *value);
    }
  } catch (const toml::parse_error&) {
    // Not TOML: a string without quotes.
  }
  return impl_->assign(key, *steps, toml::value<std::string>(text));
}

Result<std::int64_t> Config::get_int(std::string_view key, std::optional<std::int64_t> fallback,
                                     IntRange range) {
  const std::string allowed = allowed_text(range);
  PL_TRY(const toml::node* node, impl_->want(key, fallback.has_value(), allowed));
  std::int64_t value = fallback.value_or(0);
  if (node != nullptr) {
    const auto* integer = node->as_integer();
    if (integer == nullptr || integer->get() < range.min || integer->get() > range.max) {
      return impl_->invalid(key, describe(*node), allowed);
    }
    value = integer->get();
  }
  impl_->note(key, std::to_string(value));
  return value;
}

Result<double> Config::get_number(std::string_view key, std::optional<double> fallback,
                                  NumberRange range) {
  const std::string allowed = allowed_text(range);
  PL_TRY(const toml::node* node, impl_->want(key, fallback.has_value(), allowed));
  double value = fallback.value_or(0.0);
  if (node != nullptr) {
    const auto number = node->is_number() ? node->value<double>() : std::nullopt;
    if (!number || !std::isfinite(*number) || *number < range.min || *number > range.max) {
      return impl_->invalid(key, describe(*node), allowed);
    }
    value = *number;
  }
  impl_->note(key, number_text(value));
  return value;
}

Result<bool> Config::get_bool(std::string_view key, std::optional<bool> fallback) {
  PL_TRY(const toml::node* node, impl_->want(key, fallback.has_value(), "true or false"));
  bool value = fallback.value_or(false);
  if (node != nullptr) {
    if (!node->is_boolean()) return impl_->invalid(key, describe(*node), "true or false");
    value = node->as_boolean()->get();
  }
  impl_->note(key, value ? "true" : "false");
  return value;
}

Result<std::string> Config::get_string(std::string_view key, std::optional<std::string> fallback) {
  PL_TRY(const toml::node* node, impl_->want(key, fallback.has_value(), "a string"));
  std::string value = fallback.value_or("");
  if (node != nullptr) {
    if (!node->is_string()) return impl_->invalid(key, describe(*node), "a string");
    value = node->as_string()->get();
  }
  impl_->note(key, string_text(value));
  return value;
}

Result<std::string> Config::get_choice(std::string_view key,
                                       const std::vector<std::string>& allowed,
                                       std::optional<std::string> fallback) {
  const std::string choices =
      list_text(allowed, [](const std::string& s) { return string_text(s); });
  PL_TRY(const toml::node* node, impl_->want(key, fallback.has_value(), "one of " + choices));
  std::string value = fallback.value_or("");
  if (node != nullptr) {
    const auto* text = node->as_string();
    if (text == nullptr ||
        std::find(allowed.begin(), allowed.end(), text->get()) == allowed.end()) {
      return impl_->invalid(key, describe(*node), "one of " + choices);
    }
    value = text->get();
  }
  impl_->note(key, string_text(value));
  return value;
}

Result<std::vector<std::string>> Config::get_strings(
    std::string_view key, std::optional<std::vector<std::string>> fallback) {
  constexpr std::string_view kAllowed = "a string or a list of strings";
  PL_TRY(const toml::node* node, impl_->want(key, fallback.has_value(), kAllowed));
  std::vector<std::string> values = fallback.value_or(std::vector<std::string>{});
  if (node != nullptr) {
    values.clear();
    if (const auto* text = node->as_string()) {
      values.push_back(text->get());
    } else if (const auto* array = node->as_array()) {
      for (const auto& element : *array) {
        if (!element.is_string()) return impl_->invalid(key, describe(element), kAllowed);
        values.push_back(element.as_string()->get());
      }
    } else {
      return impl_->invalid(key, describe(*node), kAllowed);
    }
  }
  impl_->note(key, list_text(values, [](const std::string& s) { return string_text(s); }));
  return values;
}

Result<std::vector<double>> Config::get_numbers(std::string_view key,
                                                std::optional<std::vector<double>> fallback) {
  PL_TRY(const toml::node* node, impl_->want(key, fallback.has_value(), "a list of numbers"));
  std::vector<double> values = fallback.value_or(std::vector<double>{});
  if (node != nullptr) {
    const auto* array = node->as_array();
    if (array == nullptr) return impl_->invalid(key, describe(*node), "a list of numbers");
    values.clear();
    for (const auto& element : *array) {
      const auto number = element.is_number() ? element.value<double>() : std::nullopt;
      if (!number) return impl_->invalid(key, describe(element), "a list of numbers");
      values.push_back(*number);
    }
  }
  impl_->note(key, list_text(values, [](double v) { return number_text(v); }));
  return values;
}

Result<std::string> Config::get_path(std::string_view key, std::optional<std::string> fallback) {
  const bool present = has(key);
  PL_TRY(std::string path, get_string(key, std::move(fallback)));
  if (present && path.empty()) return impl_->invalid(key, "\"\"", "a path");
  PL_TRY(std::string absolute, impl_->absolute(key, path));
  for (auto& [used, value] : impl_->used) {
    if (used == key) value = string_text(absolute);
  }
  return absolute;
}

Result<std::vector<std::string>> Config::get_paths(
    std::string_view key, std::optional<std::vector<std::string>> fallback) {
  PL_TRY(std::vector<std::string> paths, get_strings(key, std::move(fallback)));
  for (auto& path : paths) {
    if (path.empty()) return impl_->invalid(key, "\"\"", "paths");
    PL_TRY(path, impl_->absolute(key, path));
  }
  for (auto& [used, value] : impl_->used) {
    if (used == key) value = list_text(paths, [](const std::string& s) { return string_text(s); });
  }
  return paths;
}

bool Config::has(std::string_view key) const { return find(impl_->root, key) != nullptr; }

bool Config::is_string(std::string_view key) const {
  const toml::node* node = find(impl_->root, key);
  return node != nullptr && node->is_string();
}

Result<std::size_t> Config::table_count(std::string_view key) {
  std::size_t count = 0;
  if (const toml::node* node = find(impl_->root, key); node != nullptr) {
    const auto* array = node->as_array();
    const bool tables = array != nullptr && std::all_of(array->begin(), array->end(),
                                                        [](const auto& e) { return e.is_table(); });
    if (!tables)
      return impl_->invalid(key, describe(*node), fmt::format("tables, each under [[{}]]", key));
    count = array->size();
  }
  impl_->tables.emplace(key, count);
  return count;
}

Error Config::invalid(std::string_view key, std::string_view found,
                      std::string_view allowed) const {
  return impl_->invalid(key, found, allowed);
}

bool Config::Impl::known_below(const std::string& prefix) const {
  const auto below = [&](const std::string& key) {
    return key.size() > prefix.size() && key.compare(0, prefix.size(), prefix) == 0 &&
           (key[prefix.size()] == '.' || key[prefix.size()] == '[');
  };
  return tables.contains(prefix) || std::any_of(asked.begin(), asked.end(), below);
}

void Config::Impl::collect_unknown(const toml::node& node, const std::string& key,
                                   std::vector<std::string>& unknown) const {
  if (asked.contains(key)) return;
  const auto* list = node.as_array();
  const bool section = node.is_table() || (list != nullptr && tables.contains(key));
  if (!key.empty() && (!known_below(key) || !section)) {
    unknown.push_back(key);
    return;
  }
  if (const auto* table = node.as_table()) {
    for (const auto& [child_key, child] : *table) {
      const std::string below(child_key.str());
      if (below.find_first_of(".[]") != std::string::npos) {
        // A quoted key that only looks like a path into the config.
        unknown.push_back("\"" + below + "\"");
        continue;
      }
      collect_unknown(child, key.empty() ? below : key + "." + below, unknown);
    }
  } else if (const auto* array = node.as_array()) {
    for (std::size_t i = 0; i < array->size(); ++i) {
      collect_unknown(*array->get(i), fmt::format("{}[{}]", key, i), unknown);
    }
  }
}

Result<void> Config::finish() const {
  std::vector<std::string> unknown;
  impl_->collect_unknown(impl_->root, "", unknown);
  if (unknown.empty()) return {};
  std::vector<std::string> known;
  for (const auto& key : impl_->asked) {
    known.push_back(without_indices(key));
    for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1)) {
      known.push_back(without_indices(std::string_view(key).substr(0, dot)));
    }
  }
  for (const auto& table : impl_->tables) known.push_back(table.first);
  std::string text;
  for (const auto& key : unknown) {
    if (const toml::node* node = paceline::find(impl_->root, key);
        node != nullptr && !node->is_table() && impl_->known_below(key)) {
      text += (text.empty() ? "" : "\n") +
              impl_->invalid(key, describe(*node), "a table with keys of this name").message();
      continue;
    }
    const std::string near = nearest(without_indices(key), known);
    text += fmt::format("{}{}: unknown key {}", text.empty() ? "" : "\n", impl_->place(key), key);
    if (near == without_indices(key)) {
      text += "; other entries take it, but not one of this kind or scope";
    } else if (!near.empty())
      text += fmt::format("; did you mean {}?", with_indices(near, key));
  }
  return Error(Code::kInvalidArgument, text);
}

const std::string& Config::name() const { return impl_->name; }
fs::path Config::base_dir() const { return impl_->base_dir; }

std::vector<std::pair<std::string, std::string>> Config::values() const { return impl_->used; }

std::string Config::resolved() const { return config_text(impl_->used, impl_->tables); }

}  // namespace paceline
