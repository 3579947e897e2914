#!/usr/bin/env bash
# Fuzzes one reader: builds it with clang, libFuzzer, ASan and UBSan, then runs it from the kept
# corpus (tests/fuzz/corpus) for some seconds. Inputs that reach new code stay in build/fuzz/corpus.
#   tools/fuzz.sh TARGET SECONDS [LIBFUZZER OPTIONS...]
# TARGET: config, row_group, suggest, manifest, state or safetensors. Ends with 1 at a finding, kept as
# build/fuzz/finds/TARGET-*: copy it to the corpus, as its regression test.
source "$(dirname "$0")/env.sh"

[ $# -ge 2 ] || die "usage: tools/fuzz.sh TARGET SECONDS [LIBFUZZER OPTIONS...]"
target=$1
seconds=$2
shift 2
corpus=$target
case "$target" in
  config | row_group | manifest | state | safetensors) ;;
  suggest) corpus=row_group ;;
  *) die "unknown target $target; there are: config, row_group, suggest, manifest, state, safetensors" ;;
esac

readonly dir=build/fuzz
quietly build/logs/fuzz_configure.log cmake --preset fuzz
quietly build/logs/fuzz_build.log cmake --build $dir -j "${PL_JOBS:-$(nproc)}" --target "paceline_${target}_fuzz"
mkdir -p "$dir/corpus/$target" $dir/finds
# Memory of Arrow is the system's, so that ASan sees its ends. A page may declare 2 GiB at most.
export ARROW_DEFAULT_MEMORY_POOL=system
ulimit -c 0
exec nice -n 19 "$(find $dir -name "paceline_${target}_fuzz" -type f -perm -u+x)" \
  -max_total_time="$seconds" -max_len=16384 -timeout=30 -rss_limit_mb=4096 -malloc_limit_mb=2200 \
  -artifact_prefix="$dir/finds/$target-" -print_final_stats=1 -verbosity=1 \
  "$@" "$dir/corpus/$target" "tests/fuzz/corpus/$corpus"
