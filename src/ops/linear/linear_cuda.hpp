// The linear layer's three products on the GPU (formulas: linear.hpp), by cuBLASLt.
//
//   kForward     y [rows, out]  = alpha x w^T (+ addend)     a = x,  b = w
//   kDataGrad    dx [rows, in]  = alpha dy w  (+ addend)     a = dy, b = w
//   kWeightGrad  dw [out, in]   = alpha dy^T x (+ addend)    a = x,  b = dy
// Row-major; w and dw are dense, x and dx have row stride x_stride, y and dy y_stride (elements,
// multiples of 8 for BFloat16, of 4 for float); pointers 16-byte aligned. Sums are fp32.
//
// Each shape runs one algorithm of cuBLASLt, chosen once and kept in a LinearAlgorithms, so that a
// run has the same bits in every process that was given the same ones. Only algorithms that add
// their parts in a fixed order are considered; for inference only those that do not split the sum,
// so that a row's bits do not depend on how many rows there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/error.hpp"
#include "device/stream.hpp"
#include "ops/linear/linear_algorithms.hpp"

namespace paceline::ops {

enum class LinearKind : std::uint8_t { kForward, kDataGrad, kWeightGrad };
enum class LinearType : std::uint8_t { kBFloat16, kFloat };
enum class LinearEpilogue : std::uint8_t {
  kNone,
  kGelu,      // kForward: aux [rows, out] = the product, y = gelu(product); aux has y's stride
  kGeluGrad,  // kDataGrad: dx = product * gelu'(aux); aux [rows, in] has dx's stride
};

struct LinearCudaShape {
  LinearKind kind = LinearKind::kForward;
  std::int64_t rows = 0;  // above 0, as in and out
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t x_stride = 0;
  std::int64_t y_stride = 0;
  LinearType type = LinearType::kBFloat16;          // of a and b
  LinearType result = LinearType::kBFloat16;        // of the result and the addend
  LinearEpilogue epilogue = LinearEpilogue::kNone;  // type and result kBFloat16 only
  bool add = false;
  bool split = true;  // false: the sum is never split

  // A name for the shape, the same in every process.
  std::string key() const;
};

struct LinearPointers {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* addend = nullptr;  // may be the result
  void* result = nullptr;
  void* aux = nullptr;
  float alpha = 1.0F;
};

// LinearAlgorithms::device of this process on the GPU of that name.
std::string linear_device(const std::string& gpu);

// Prepared products. One stream at a time: products share the scratch memory.
class LinearCuda {
 public:
  // Scratch of `workspace_bytes` on the device, 256-byte aligned, outlives this. `known`: chosen
  // before; taken over when they are of this device and library, else nothing is.
  LinearCuda(std::string device, void* workspace, std::size_t workspace_bytes,
             const LinearAlgorithms& known);
  ~LinearCuda();
  LinearCuda(const LinearCuda&) = delete;
  LinearCuda& operator=(const LinearCuda&) = delete;

  // Index of the prepared product; the same shape gives the same one. The algorithm is the known
  // one, else cuBLASLt's first choice. kUnavailable: cuBLASLt has none for the shape.
  Result<int> prepare(const LinearCudaShape& shape);
  // Measures up to `candidates` algorithms with these pointers and keeps the fastest; the result is
  // overwritten, so it must not be the addend. Nothing is done for a known algorithm. Blocks.
  void tune(const device::Stream& stream, int product, const LinearPointers& at, int candidates);
  void run(const device::Stream& stream, int product, const LinearPointers& at);

  // Of all prepared products.
  LinearAlgorithms algorithms() const;
  // True when `known` was given and could not be used.
  bool other_device() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline::ops
