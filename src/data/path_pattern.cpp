#include "data/path_pattern.hpp"

#include <fnmatch.h>

namespace paceline::data {
namespace {

constexpr const char* kPatternCharacters = "*?[";

// The first name of a path, and what follows it.
struct Split {
  std::string_view name, rest;
  bool last = true;
};

Split split(std::string_view path) {
  const auto slash = path.find('/');
  if (slash == std::string_view::npos) return {path, {}, true};
  return {path.substr(0, slash), path.substr(slash + 1), false};
}

bool name_matches(std::string_view pattern, std::string_view name) {
  return ::fnmatch(std::string(pattern).c_str(), std::string(name).c_str(), FNM_PERIOD) == 0;
}

}  // namespace

bool path_matches(std::string_view pattern, std::string_view path) {
  const Split p = split(pattern);
  const Split s = split(path);
  if (p.name == "**") {
    if (!p.last && path_matches(p.rest, path)) return true;
    if (s.name.starts_with('.') || s.name.starts_with('_')) return false;
    return s.last ? p.last : path_matches(pattern, s.rest);
  }
  if (!name_matches(p.name, s.name) || p.last != s.last) return false;
  return p.last || path_matches(p.rest, s.rest);
}

bool is_pattern(std::string_view path) {
  return path.find_first_of(kPatternCharacters) != std::string_view::npos;
}

std::string pattern_root(const std::string& pattern) {
  const auto slash = pattern.substr(0, pattern.find_first_of(kPatternCharacters)).rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : pattern.substr(0, slash);
}

}  // namespace paceline::data
