// What a place of the table's lookups stands for.
#pragma once

#include "ops/table_adagrad/table_adagrad_cuda.hpp"

namespace paceline::ops {

struct TablePlace {
  const TableKindCuda* kind;
  const TableLookupCuda* lookup;
  std::int64_t entry;

  __device__ TablePlace(const TableSourcesCuda& sources, std::int32_t place) {
    int k = 0;
    while (k + 1 < sources.kind_count && sources.kinds[k + 1].first_place <= place) ++k;
    kind = sources.kinds + k;
    const std::int32_t in_kind = place - kind->first_place;
    const std::int32_t e = in_kind / kind->per_entry;
    entry = e;
    lookup = sources.lookups + kind->first_lookup + (in_kind - e * kind->per_entry);
  }
};

}  // namespace paceline::ops
