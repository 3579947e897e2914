#include "checkpoint/json_text.hpp"

#include <fmt/format.h>

namespace paceline::checkpoint {
namespace {

constexpr int kMaxNesting = 64;

bool nests_deeper(std::string_view text, int limit) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > limit) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text) {
  if (nests_deeper(text, kMaxNesting)) {
    return Error(Code::kCorruptData,
                 fmt::format("its JSON nests deeper than {} levels", kMaxNesting));
  }
  auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) return Error(Code::kCorruptData, "it is not JSON");
  return json;
}

}  // namespace paceline::checkpoint
