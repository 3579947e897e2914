// Private to the room: where the GPU ranker's values live. Names and shapes are those of
// activations.hpp, rows those of the capacity.
#pragma once

#include <cstdint>
#include <vector>

#include "device/bfloat16.hpp"
#include "device/memory.hpp"
#include "model/activations.hpp"
#include "model/model_config.hpp"

namespace paceline::model {

template <typename T>
struct BlockCuda {
  T* h = nullptr;
  T* norm = nullptr;
  float* norm_rms = nullptr;
  T* query_in = nullptr;
  T* q_raw = nullptr;
  T* k_raw = nullptr;
  T* v = nullptr;
  std::int64_t q_stride = 0;
  std::int64_t kv_stride = 0;
  T* q = nullptr;
  float* q_rms = nullptr;
  T* k = nullptr;
  float* k_rms = nullptr;
  T* o = nullptr;
  float* lse = nullptr;
  T* h_mid = nullptr;
  T* mlp_norm = nullptr;
  float* mlp_rms = nullptr;
  T* mlp_up = nullptr;
  T* mlp_act = nullptr;
  T* h_out = nullptr;
};

template <typename T>
struct GradCuda {
  T* dh = nullptr;             // [T, width]
  T* dh_candidates = nullptr;  // [C, width]
  T* wide = nullptr;           // [T, max(F, Q + 2 K)]
  T* rows = nullptr;           // [T, max(width, Q)]
  T* dq = nullptr;             // [T, Q]
  T* dk = nullptr;             // [T, K]
  T* dq_raw = nullptr;         // [C, Q]
  T* query_in = nullptr;       // [C, width]
  float* delta = nullptr;      // [T, query_heads]
  float* partials = nullptr;   // [kNormPartials, max(width, Q)]
  T* kind_rows = nullptr;      // [kind rows, width]
};

// Features of a kind as columns, its projection, and their gradients.
template <typename T>
struct KindCuda {
  T* x = nullptr;             // [entries, k_padded]
  T* weight = nullptr;        // [width, k_padded]
  T* dx = nullptr;            // [entries, k_padded]; kinds with lookups, in training
  float* d_weight = nullptr;  // [width, k_padded]; in training
};

template <typename T>
struct ActivationsCuda {
  std::vector<BlockCuda<T>> blocks;
  GradCuda<T> grad;
  std::vector<KindCuda<T>> kinds;
  T* kind_rows = nullptr;  // [kind rows, width]
  std::int32_t* source = nullptr;
  std::int32_t* token_of = nullptr;
  std::int32_t* candidate_position = nullptr;
  T* final_norm = nullptr;     // [C, width]
  float* final_rms = nullptr;  // [C]
  float* head = nullptr;       // [C, stride]
  T* d_head = nullptr;         // [C, stride]
  double* loss_partials = nullptr;
  double* loss = nullptr;
};

struct SizesCuda {
  Capacity capacity;
  std::int64_t kind_rows = 0;
  std::int64_t head_stride = 0;
  std::vector<std::int64_t> entries;  // capacity of each kind
  std::vector<int> k_padded;          // of each kind; 0: no features
  std::vector<std::int64_t> lookups;  // of an entry of each kind
};

// Takes all arrays from the arena.
template <typename T>
ActivationsCuda<T> place_activations(device::Arena& arena, const ModelConfig& config,
                                     const SizesCuda& sizes, bool training);

}  // namespace paceline::model
