#!/usr/bin/env bash
# The GPU lane: everything that needs a Hopper GPU, on programs that are built already.
#
#   tools/gpu.sh [BUILD] [-- PYTHON SCRIPT]     BUILD: build/release
#
#   tests      the GPU tests of every room; one that is skipped fails
#   sanitizer  memcheck, synccheck and initcheck of compute-sanitizer over the tests of steps
#   parity     one config trained on the CPU, on the GPU, and half on each
#   bench      bench/step.py; with PYTHON SCRIPT beside that peer
# Logs are in build/logs/gpu_*.log, figures in bench/results/step.jsonl. Ends with a table.
source "$(dirname "$0")/env.sh"

build=${1:-build/release}
[ "$build" = -- ] && build=build/release || shift || true
[ "${1:-}" = -- ] && shift
readonly logs=build/logs
readonly sanitizer=${COMPUTE_SANITIZER:-compute-sanitizer}
export PACELINE_NEEDS_GPU=1
mkdir -p $logs
table=""
failed=""

# part NAME COMMAND...
part() {
  local name=$1 begin=$EPOCHREALTIME outcome=passed
  shift
  "$@" >"$logs/gpu_$name.log" 2>&1 || outcome=failed
  [ $outcome = passed ] || failed+=" $name"
  table+=$(printf '%-22s %-8s %9s' "$name" $outcome "$(elapsed "$begin" "$EPOCHREALTIME") s")$'\n'
  [ $outcome = passed ] || tail -n 25 "$logs/gpu_$name.log"
}

# Losses of a run by step.
losses() {
  python3 - "$1/metrics.jsonl" <<'PY'
import json, sys
print(*(f"{l['step']} {l['loss']!r}" for l in map(json.loads, open(sys.argv[1]))), sep="\n")
PY
}

# The same config everywhere: fp32 is the CPU's within rounding, and a run may change devices.
parity() {
  local work=$build/gpu_parity
  rm -rf "$work"
  mkdir -p "$work"
  "$build/paceline" data synth "$work/data" --rows 2048
  sed "s#^dir = .*#dir = \"run\"#" examples/synth/config.toml >"$work/config.toml"
  local train=("$build/paceline" train "$work/config.toml" --set train.precision=auto --set train.log_every=1
    --set eval.every_steps=0)
  "${train[@]}" --device cpu --set run.dir=cpu --set train.max_steps=20
  "${train[@]}" --device cuda --set run.dir=fp32 --set train.precision=fp32 --set train.max_steps=20
  "${train[@]}" --device cuda --set run.dir=bf16 --set train.max_steps=20
  "${train[@]}" --device cuda --set run.dir=again --set train.max_steps=20
  "${train[@]}" --device cpu --set run.dir=both --set train.max_steps=10
  "${train[@]}" --device cuda --set run.dir=both --set train.precision=fp32 --set train.max_steps=20
  "${train[@]}" --device cuda --set run.dir=stopped --set train.max_steps=10
  "${train[@]}" --device cuda --set run.dir=stopped --set train.max_steps=20
  for run in cpu fp32 bf16 again both stopped; do losses "$work/$run" >"$work/$run.txt"; done
  cmp "$work/bf16.txt" "$work/again.txt" || die "two runs differ"
  cmp "$work/bf16.txt" "$work/stopped.txt" || die "a resumed run differs"
  python3 - "$work" <<'PY'
import sys
read = lambda name: [float(l.split()[1]) for l in open(f"{sys.argv[1]}/{name}.txt")]
cpu = read("cpu")
for name, allowed in (("fp32", 1e-3), ("both", 1e-3), ("bf16", 2e-2)):
    other = read(name)
    assert len(other) == len(cpu) == 20, name
    worst = max(abs(a - b) / abs(b) for a, b in zip(other, cpu))
    print(f"{name}: losses differ from the CPU's by {worst:.2e} at most, allowed {allowed}")
    assert worst < allowed, name
PY
}

for room in device ops model train; do
  part "tests_$room" "$build/paceline_${room}_gpu_tests" --gtest_brief=1
done
for tool in memcheck synccheck initcheck; do
  part "$tool" "$sanitizer" --tool $tool --error-exitcode 9 "$build/paceline_train_gpu_tests" --gtest_brief=1
done
part parity parity
part bench bench/step.py --program "$build/paceline" ${1:+--peer "$1" "$2"}

printf '\n%s' "$table"
[ -z "$failed" ] || die "failed:$failed"
