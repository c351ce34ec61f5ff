#!/usr/bin/env bash
# What compressed gradients do to the loss: the quickstart's model and text on two ranks, for every
# mode and seed, and a table of validation losses and bytes. Needs the quickstart's data (./run
# quickstart, or its data part). Runs that are there already are not repeated, so the study can be
# done in parts. Usage:
#   bench/compression_study.sh [--steps N] [--seeds "1 2 3"] [--modes "none int8 topk topk_int8"]
#                              [--data DIR] [--out DIR] [--belay PROGRAM] [--set SECTION.KEY=VALUE]
set -euo pipefail
cd "$(dirname "$0")/.."

steps=300
seeds="1 2 3"
modes="none int8 topk topk_int8"
data=quickstart/data
out=quickstart/compression
belay=build/release/belay
extra=()
while [ $# -gt 1 ]; do
  case $1 in
    --steps) steps=$2 ;;
    --seeds) seeds=$2 ;;
    --modes) modes=$2 ;;
    --data) data=$2 ;;
    --out) out=$2 ;;
    --belay) belay=$2 ;;
    --set) extra+=(--set "$2") ;;
    *) break ;;
  esac
  shift 2
done
if [ $# -gt 0 ]; then
  sed -n '6,7s/^# *//p' "$0" >&2
  exit 2
fi
if [ ! -d "$data/train" ] || [ ! -d "$data/val" ]; then
  echo "$0: $data has no train and val; run ./run quickstart first, or give --data" >&2
  exit 2
fi

dtype=f32
if grep -q avx512_bf16 /proc/cpuinfo; then dtype=bf16; fi
mkdir -p "$out"
cat >"$out/config.toml" <<TOML
[model]
family = "llama"
layers = 6
hidden = 256
heads = 8
kv_heads = 4
ffn = 704
seq_len = 256
tie_embeddings = true

[data]
train = "$data/train"
val = "$data/val"

[train]
steps = $steps
micro_batch = 4
global_batch = 8
dtype = "$dtype"
eval_every = $steps
eval_batches = 60
snapshot_every = 0

[optimizer]
lr = 3e-3
min_lr = 1e-4
schedule = "cosine"
warmup_steps = $((steps / 20))
weight_decay = 0.1

[comm]
compression_when = "always"

[observe]
tensorboard = false
console_every = 0
TOML

# number NAME FILE
number() { sed -n "s/^ *\"$1\": \([^,]*\),*$/\1/p" "$2"; }

# Two ranks share what processors there are; busy waiting would take them from each other.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
for seed in $seeds; do
  for mode in $modes; do
    run=$out/$mode-$seed
    if [ -f "$run/summary.json" ]; then continue; fi
    rm -rf "$run"
    mpirun -n 2 "$belay" --quiet train "$out/config.toml" --out "$run" \
      --set "train.seed=$seed" --set "comm.compression=\"$mode\"" "${extra[@]}" >/dev/null
    rm -rf "$run/snapshots"
    echo "$mode, seed $seed: validation loss $(number val_loss "$run/summary.json")" >&2
  done
done

# Differences are taken seed by seed, so that what a seed does to all modes drops out.
{
  for mode in $modes; do
    for seed in $seeds; do
      summary=$out/$mode-$seed/summary.json
      dense=$out/none-$seed/summary.json
      [ -f "$dense" ] || dense=$summary
      echo "$mode $(number val_loss "$summary") $(number val_loss "$dense")" \
        "$(number comm_bytes "$summary") $(number comm_dense_bytes "$summary")" \
        "$(number measured_step_ms "$summary")"
    done
  done
} | awk -v steps="$steps" '
  function spread(squares, sum, n) { return n > 1 ? sqrt((squares - sum * sum / n) / (n - 1) + 1e-12) : 0 }
  !($1 in n) { order[++modes] = $1 }
  {
    n[$1]++
    loss[$1] += $2; squares[$1] += $2 * $2
    d = $2 - $3
    difference[$1] += d; dsquares[$1] += d * d
    sent[$1] += $4; dense[$1] += $5; ms[$1] += $6
  }
  END {
    printf "%d steps; loss: mean over seeds and standard deviation; to none: the same of differences seed by seed\n", steps
    printf "%-10s %5s %18s %20s %12s %9s\n", "mode", "seeds", "validation loss", "to none", "bytes saved", "step ms"
    for (i = 1; i <= modes; ++i) {
      m = order[i]; k = n[m]
      printf "%-10s %5d %9.4f +- %.4f %10.4f +- %.4f %11.1f%% %9.1f\n", m, k, loss[m] / k,
        spread(squares[m], loss[m], k), difference[m] / k, spread(dsquares[m], difference[m], k),
        100 * (1 - sent[m] / dense[m]), ms[m] / k
    }
  }'
