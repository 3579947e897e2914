// A result whose error was given context and then dropped must not compile.
#include "core/error.hpp"

paceline::Result<int> count();

void use() {
#ifdef PACELINE_ALLOWED
  if (!count().context("counting")) return;
#else
  count().context("counting");
#endif
}
