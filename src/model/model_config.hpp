// Sizes of the ranker (config section [model]).
#pragma once

#include "core/config.hpp"
#include "core/error.hpp"
#include "ops/ranker_attention/ranker_attention.hpp"

namespace paceline::model {

struct ModelConfig {
  int width = 128;
  int layers = 2;
  int query_heads = 2;
  int key_heads = 1;
  int head_dim = 64;
  int ffn = 256;
  int table_width = 32;
  double rope_base = 10000.0;
  double norm_eps = 1e-5;
  bool causal = false;                          // history rows do not read later ones
  ops::SoftCap cap_kind = ops::SoftCap::kNone;  // "none", "tanh" or "soft_sign"
  double cap = 0.0;                             // of attention logits; above 0 with a cap_kind

  // Keys model.<field>, all optional. Refuses impossible sizes: zero or huge ones, query_heads
  // that key_heads does not divide, a head_dim that is not a multiple of 8, a cap without its kind.
  static Result<ModelConfig> from_config(Config& config);

  int query_width() const { return query_heads * head_dim; }
  int key_width() const { return key_heads * head_dim; }
};

}  // namespace paceline::model
