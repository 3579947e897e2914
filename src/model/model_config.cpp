#include "model/model_config.hpp"

#include <fmt/format.h>

#include <string>

namespace paceline::model {
namespace {

constexpr std::int64_t kMaxWidth = 65536;
constexpr std::int64_t kMaxLayers = 1024;
constexpr std::int64_t kMaxHeads = 1024;
constexpr std::int64_t kMaxHeadDim = 1024;
constexpr int kHeadDimStep = 8;

Result<void> read_sizes(Config& config, ModelConfig& m) {
  struct Size {
    const char* key;
    int* value;
    std::int64_t max;
  };
  for (const Size& s :
       {Size{"model.width", &m.width, kMaxWidth}, Size{"model.layers", &m.layers, kMaxLayers},
        Size{"model.query_heads", &m.query_heads, kMaxHeads},
        Size{"model.key_heads", &m.key_heads, kMaxHeads},
        Size{"model.head_dim", &m.head_dim, kMaxHeadDim}, Size{"model.ffn", &m.ffn, kMaxWidth},
        Size{"model.table_width", &m.table_width, kMaxWidth}}) {
    PL_TRY(const auto value, config.get_int(s.key, *s.value, {.min = 1, .max = s.max}));
    *s.value = static_cast<int>(value);
  }
  if (m.query_heads % m.key_heads != 0) {
    return config.invalid("model.query_heads", std::to_string(m.query_heads),
                          fmt::format("a multiple of model.key_heads = {}", m.key_heads));
  }
  if (m.head_dim % kHeadDimStep != 0) {
    return config.invalid("model.head_dim", std::to_string(m.head_dim),
                          fmt::format("a multiple of {}", kHeadDimStep));
  }
  return {};
}

Result<void> read_cap(Config& config, ModelConfig& m) {
  PL_TRY(const auto kind,
         config.get_choice("model.cap_kind", {"none", "tanh", "soft_sign"}, std::string("none")));
  m.cap_kind = kind == "tanh"        ? ops::SoftCap::kTanh
               : kind == "soft_sign" ? ops::SoftCap::kSoftSign
                                     : ops::SoftCap::kNone;
  PL_TRY(m.cap, config.get_number("model.cap", 0.0, {.min = 0.0, .max = 1e6}));
  const bool capped = m.cap_kind != ops::SoftCap::kNone;
  if (capped && m.cap <= 0.0) {
    return config.invalid("model.cap", fmt::format("{}", m.cap),
                          fmt::format("a number above 0, since model.cap_kind is \"{}\"", kind));
  }
  if (!capped && m.cap > 0.0) {
    return config.invalid("model.cap", fmt::format("{}", m.cap),
                          "0, or model.cap_kind = \"tanh\" or \"soft_sign\" with it");
  }
  return {};
}

}  // namespace

Result<ModelConfig> ModelConfig::from_config(Config& config) {
  ModelConfig m;
  PL_TRY_VOID(read_sizes(config, m));
  PL_TRY(m.rope_base, config.get_number("model.rope_base", m.rope_base, {.min = 1.0, .max = 1e12}));
  PL_TRY(m.norm_eps, config.get_number("model.norm_eps", m.norm_eps, {.min = 1e-12, .max = 1.0}));
  PL_TRY(m.causal, config.get_bool("model.causal", m.causal));
  PL_TRY_VOID(read_cap(config, m));
  return m;
}

}  // namespace paceline::model
