// A failure whose context was added and that nobody looks at: must not compile.
#include "core/error.hpp"

paceline::Result<int> count();

void use() { count().context("counting"); }
