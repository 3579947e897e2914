#!/usr/bin/env bash
# Every check and test, as CI runs them, cheapest first:
#   format   clang-format 14
#   layers   includes against the table of rooms
#   docs     paths, symbols and figures that the documents name
#   clang    the program compiles and links with clang 14, warnings as errors
#   dev      all tests with ASan and UBSan
#   tsan     tests of the rooms with threads, with ThreadSanitizer
#   release  everything as users build it, with CUDA where nvcc is found; every header on its own
# With arguments, only these lanes. Ends with ctest's summary of the release lane, or with the
# names of the lanes that failed.
source "$(dirname "$0")/env.sh"

# ThreadSanitizer of g++ 12 finds no room for its shadow memory among addresses more random than 28
# bits, the default of newer kernels.
random_bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)
if [ "$random_bits" -gt 28 ] && [ -z "${PL_FIXED_ADDRESSES:-}" ] && setarch -R true 2>/dev/null; then
  exec env PL_FIXED_ADDRESSES=1 setarch -R "$PWD/tools/test.sh" "$@"
fi

readonly all_lanes="format layers docs clang dev tsan release"
readonly lanes=${*:-$all_lanes}
readonly thread_rooms="pipeline data checkpoint train"
readonly logs=build/logs
jobs=$(nproc)
failed=""
table=""

for lane in $lanes; do
  case " $all_lanes " in
    *" $lane "*) ;;
    *) die "unknown lane $lane; there are: $all_lanes" ;;
  esac
done

# Adds a row to the table: lane, outcome, counts, seconds.
record() {
  table+=$(printf '%-10s %-8s %8s %8s %8s %9s' "$1" "$2" "$3" "$4" "$5" "$6 s")$'\n'
  [ "$2" = passed ] || failed+=" $1"
}

# configure PRESET OPTIONS...
configure() {
  local preset=$1
  shift
  quietly $logs/"$preset"_configure.log cmake --preset "$preset" "$@"
}

# build PRESET TARGETS...
build() {
  local preset=$1
  shift
  quietly $logs/"$preset"_build.log cmake --build "build/$preset" -j "$jobs" --target "$@"
}

# run_tests PRESET OPTIONS...
run_tests() {
  local preset=$1
  shift
  ctest --preset "$preset" -j "$jobs" --no-tests=error --output-junit "$PWD/$logs/$preset.xml" "$@"
}

# "passed failed skipped" of the last run_tests PRESET.
counts() {
  local file=$logs/$1.xml tests failures skipped disabled
  [ -e "$file" ] || { echo "- - -"; return; }
  read -r tests failures skipped disabled < <(python3 - "$file" <<'PY'
import sys, xml.etree.ElementTree as tree
suite = tree.parse(sys.argv[1]).getroot()
print(*(suite.get(key, "0") for key in ("tests", "failures", "skipped", "disabled")))
PY
  )
  echo "$((tests - failures - skipped - disabled)) $failures $((skipped + disabled))"
}

format_lane() { tools/check_format.sh; }
layers_lane() { python3 tools/check_layers.py --self-test && python3 tools/check_layers.py; }
docs_lane() { python3 tools/check_docs.py --self-test && python3 tools/check_docs.py; }

clang_lane() { configure clang && build clang all; }

dev_lane() { configure dev && build dev all && run_tests dev; }

tsan_lane() {
  local targets="" pattern
  for room in $thread_rooms stress; do targets+=" paceline_${room}_tests"; done
  pattern="^(${thread_rooms// /|}|stress)\\."
  # shellcheck disable=SC2086
  configure tsan && build tsan $targets &&
    TSAN_OPTIONS="suppressions=$PWD/tools/tsan.supp" run_tests tsan -R "$pattern"
}

release_lane() {
  configure release -DPACELINE_CUDA=AUTO -DPACELINE_TESTS=ON && build release all all_verify_interface_header_sets &&
    example_lane
}

# The example of the library, built by its own project.
example_lane() {
  quietly $logs/example_configure.log cmake -S examples/loader -B build/loader -G Ninja -DCMAKE_BUILD_TYPE=Release &&
    quietly $logs/example_build.log cmake --build build/loader -j "$jobs" --target paceline_example_loader
}

readonly start=$EPOCHREALTIME
mkdir -p $logs
for lane in $lanes; do
  echo "== $lane"
  rm -f "$logs/$lane.xml"
  lane_start=$EPOCHREALTIME
  if "${lane}_lane"; then outcome=passed; else outcome=FAILED; fi
  # shellcheck disable=SC2046
  record "$lane" $outcome $(counts "$lane") "$(elapsed "$lane_start" $EPOCHREALTIME)"
done

printf '\n%-10s %-8s %8s %8s %8s %11s\n%s' lane outcome passed failed skipped time "$table"
case " $lanes " in
  *" release "*)
    case "$failed" in
      *release*) ;;
      *)
        echo "(release: built; its tests follow)"
        run_tests release || failed+=" release"
        ;;
    esac
    ;;
esac
if [ -n "$failed" ]; then
  echo "FAILED:$failed ($(elapsed "$start" $EPOCHREALTIME) s)" >&2
  exit 1
fi
