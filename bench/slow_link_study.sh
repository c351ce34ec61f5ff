#!/usr/bin/env bash
# One link at a tenth of its bandwidth among eight ranks: step times with and without going around
# it, beside a run in which nothing is slow, and whether losses are the same. All links are slowed
# far below memory by injection, so that a step is transfer. Packs this repository's documents as
# data. Usage:
#   bench/slow_link_study.sh [--steps N] [--modes "ring direct stable_ring stable_direct"]
#                            [--out DIR] [--belay PROGRAM]
set -euo pipefail
cd "$(dirname "$0")/.."

steps=14
modes="ring direct stable_ring stable_direct"
out=build/slow-link
belay=build/release/belay
while [ $# -gt 1 ]; do
  case $1 in
    --steps) steps=$2 ;;
    --modes) modes=$2 ;;
    --out) out=$2 ;;
    --belay) belay=$2 ;;
    *) break ;;
  esac
  shift 2
done
if [ $# -gt 0 ]; then
  sed -n '6,7s/^# *//p' "$0" >&2
  exit 2
fi

mkdir -p "$out"
if [ ! -d "$out/data" ]; then
  cat docs/*.md >"$out/text.txt"
  "$belay" -q pack "$out/text.txt" --tokenizer bytes --out "$out/data"
fi
cat >"$out/config.toml" <<TOML
[model]
family = "llama"
layers = 2
hidden = 128
heads = 4
kv_heads = 4
ffn = 352
seq_len = 32

[data]
train = "$out/data"

[train]
steps = $steps
micro_batch = 1
global_batch = 8
dtype = "f32"
seed = 1
log_every = 1
TOML

# name, options: a run of its own, unless it is there already.
run() {
  local name=$1
  shift
  [ -f "$out/$name/summary.json" ] && return
  rm -rf "${out:?}/$name"
  OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive mpirun --oversubscribe --bind-to none -n 8 \
    "$belay" -q train "$out/config.toml" --out "$out/$name" --set comm.bucket_mb=16 "$@" \
    >"$out/$name.out" 2>"$out/$name.err"
}

# Median step time of the last half, and the losses.
median() {
  grep -o '"step_ms":[0-9.]*' "$out/$1/metrics.jsonl" | cut -d: -f2 | tail -n $((steps / 2)) |
    sort -n | awk '{v[NR] = $1} END {printf "%.1f", v[int((NR + 1) / 2)]}'
}
losses() { grep -o '"loss":[^,]*' "$out/$1/metrics.jsonl"; }

all="all bandwidth=2e7"
printf '%-14s %12s %12s %12s  %s\n' mode "nothing slow" "slow, stays" "slow, around" losses
for mode in $modes; do
  algorithm=${mode#stable_}
  stable=false
  [ "$mode" != "$algorithm" ] && stable=true
  options=(--set "comm.force=\"all_reduce:65536-=$algorithm\"" --set "comm.order_stable=$stable")
  run "$mode-even" "${options[@]}" --set "comm.inject=\"$all\""
  slow="$all; link 2->3 bandwidth=2e6"
  run "$mode-stays" "${options[@]}" --set comm.reform=false --set "comm.inject=\"$slow\""
  run "$mode-around" "${options[@]}" --set "comm.inject=\"$slow\""
  same=differ
  [ "$(losses "$mode-even")" = "$(losses "$mode-around")" ] && same=equal
  printf '%-14s %12s %12s %12s  %s\n' "$mode" "$(median "$mode-even")" "$(median "$mode-stays")" \
    "$(median "$mode-around")" "$same"
done
