#!/usr/bin/env bash
# Builds build/release/paceline.
#   tools/build.sh AUTO|ON|OFF   CUDA code: where nvcc is found, always, never
source "$(dirname "$0")/env.sh"

readonly cuda=${1:?usage: tools/build.sh AUTO|ON|OFF}
readonly cache=build/release/CMakeCache.txt
# An existing build folder is configured again only for another CUDA switch; ninja notices changes
# of the build files by itself.
if [ ! -e build/release/build.ninja ] || ! grep -q "^PACELINE_CUDA:STRING=$cuda$" $cache; then
  quietly build/logs/configure.log cmake --preset release -DPACELINE_CUDA="$cuda" -DPACELINE_TESTS=OFF
fi
quietly build/logs/build.log cmake --build build/release --target paceline
