// Row-wise AdaGrad on deduplicated rows of the shared table.
//
// dedup: lookups (row numbers, -1 = missing) -> unique rows ascending, and for each the places that
// looked it up, in ascending order (a stable radix sort). A pure function of the lookups.
// update, for each unique row:  g = grad_scale * sum of its d_rows in place order (fp32);
//   acc[row] += mean(g^2);  table[row] -= lr * g / (sqrt(acc[row]) + eps).
// Rows are independent, so the result does not depend on the thread count.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/context.hpp"

namespace paceline::ops {

// Capacity is fixed at creation: no allocation later.
struct TableRowIndex {
  std::vector<std::int32_t> rows;    // [unique] ascending
  std::vector<std::int32_t> starts;  // [unique + 1] into places; the rest of each is unused
  std::vector<std::int32_t> places;  // lookups that are not missing, grouped by row
  std::int32_t unique = 0;
  std::vector<std::uint64_t> sort_scratch;

  explicit TableRowIndex(std::int64_t max_lookups);
};

// lookups [n], each in [-1, table_rows).
void table_dedup_cpu(Context& ctx, std::int64_t n, const std::int32_t* lookups,
                     TableRowIndex& index);

struct TableAdagradArgs {
  const TableRowIndex* index = nullptr;
  const float* d_rows = nullptr;  // [lookups, width]
  int width = 0;
  float* table = nullptr;  // [rows, width]
  float* acc = nullptr;    // [rows]
  double lr = 0.0, eps = 1e-10;
  double grad_scale = 1.0;
};

void table_adagrad_cpu(Context& ctx, const TableAdagradArgs& args);

// True when every d_rows value of the indexed places is finite.
bool table_grad_finite_cpu(Context& ctx, const TableAdagradArgs& args);

}  // namespace paceline::ops
