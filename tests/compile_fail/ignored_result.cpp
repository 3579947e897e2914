#include "core/error.hpp"

paceline::Result<void> save();

void leave() {
#if defined(PACELINE_ALLOWED)
  paceline::discard(save());
#else
  save();
#endif
}
