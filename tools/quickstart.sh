#!/usr/bin/env bash
# From a clone to ranked films: sets up, builds, imports MovieLens-100K, trains, evaluates, ranks.
# A second run repeats nothing that is done; an interrupted one goes on where it was.
source "$(dirname "$0")/env.sh"

readonly example=examples/movielens
readonly config=$example/config.toml
readonly data=$example/data
readonly run=$example/run
readonly program=build/release/paceline
readonly trained=$run/.trained
readonly phases="setup build import train eval rank"
declare -rA says=(
  [setup]="Debian packages and a project-local Python environment (.venv) with Arrow and the data"
  [build]="the release program, $program"
  [import]="MovieLens-100K as impressions: eight films shown to a user, and the history before them"
  [train]="a transformer ranker, as $config says"
  [eval]="its metrics on the newest tenth of the impressions, which it never saw"
  [rank]="one user's candidates, best first (score: the probability of a like)"
)

# outdated FILE INPUTS...: FILE is missing or older than an input.
outdated() {
  local file=$1 input
  shift
  [ -e "$file" ] || return 0
  for input in "$@"; do
    if [ "$input" -nt "$file" ]; then return 0; fi
  done
  return 1
}

setup_phase() { tools/setup.sh; }

build_phase() {
  local cuda=OFF
  if nvidia-smi -L >/dev/null 2>&1; then cuda=AUTO; fi
  tools/build.sh $cuda
}

import_phase() {
  cat <<'TEXT'
   The data: MovieLens-100K by GroupLens Research, University of Minnesota, as it comes with the
   RecBole package. Terms: for research; no commercial use without permission of GroupLens; cite
   F. M. Harper and J. A. Konstan, The MovieLens Datasets: History and Context, ACM TiiS 5(4), 2015.
TEXT
  local split
  for split in train valid test; do
    if [ ! -e $data/$split.parquet ]; then
      $program data import movielens "$movielens/ml-100k.inter" $data
      return
    fi
  done
  echo "   $data is there already"
}

train_phase() {
  if outdated $trained $config $data/train.parquet; then
    $program train $config
    touch $trained
  else
    echo "   $run is trained already"
  fi
}

eval_phase() {
  local table=$run/eval_test.txt
  if outdated $table $trained; then
    $program eval $config --split test >$table.partial
    mv $table.partial $table
  fi
  cat $table
}

rank_phase() {
  local ranked=$run/test_ranked.parquet
  if outdated $ranked $trained; then
    $program rank $run $data/test.parquet -o $ranked
  fi
  .venv/bin/python $example/show.py $data/test.parquet $ranked "$movielens/ml-100k.item"
}

# A phase runs in a shell of its own, so that the first command that fails ends it.
if [ "${1:-}" = --phase ]; then
  movielens=$(echo .venv/lib/python3*/site-packages/recbole/dataset_example/ml-100k)
  "${2}_phase"
  exit
fi

summary=""
readonly start=$EPOCHREALTIME
for phase in $phases; do
  echo "== $phase: ${says[$phase]}"
  phase_start=$EPOCHREALTIME
  rc=0
  tools/quickstart.sh --phase "$phase" || rc=$?
  seconds=$(elapsed "$phase_start" $EPOCHREALTIME)
  if [ $rc -eq 130 ]; then
    echo "Stopped during $phase. \`make quickstart\` goes on from here." >&2
    exit 130
  elif [ $rc -ne 0 ]; then
    die "$phase failed after $seconds s; what went wrong stands above."
  fi
  printf '   (%s: %s s)\n\n' "$phase" "$seconds"
  summary+=" $phase $seconds s,"
done
echo "Done in $(elapsed "$start" $EPOCHREALTIME) s:${summary%,}."
echo "The run is in $run; \`$program --help\` lists what else there is."
