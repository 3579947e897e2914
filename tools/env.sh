# Shared by the scripts of this folder; to be sourced. Changes to the repository root.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The CUDA toolkit's usual place, when it is not on the PATH already.
if ! command -v nvcc >/dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then
  PATH="$PATH:/usr/local/cuda/bin"
fi

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Seconds between two values of $EPOCHREALTIME, with one decimal.
elapsed() {
  local us=$((${2/[.,]/} - ${1/[.,]/}))
  printf '%d.%d' $((us / 1000000)) $((us / 100000 % 10))
}

# quietly LOG COMMAND...: output goes to the terminal, or to LOG when there is none; then a failure
# shows LOG's end.
quietly() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  if [ -t 1 ]; then
    "$@"
    return
  fi
  local rc=0
  "$@" >"$log" 2>&1 || rc=$?
  if [ "$rc" -ne 0 ]; then
    tail -n 60 "$log" >&2
    echo "(the whole output: $log)" >&2
  fi
  return "$rc"
}
