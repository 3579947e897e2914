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
  bool causal = false;
  ops::SoftCap cap_kind = ops::SoftCap::kNone;
  double cap = 0.0;

  // Refuses impossible sizes (heads not divisible, head_dim not a multiple of 8, zero, ...).
  static Result<ModelConfig> from_config(Config& config);
};

}  // namespace paceline::model
