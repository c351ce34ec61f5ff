#!/usr/bin/env bash
# From nothing to a trained model that writes English and Chinese, in a few minutes. Fetches text,
# trains a tokenizer and a small model, evaluates it, shows that resuming repeats a run exactly,
# and generates. Everything lies under quickstart/ and can be deleted. Usage:
#   scripts/quickstart.sh [--short]     --short: a tiny model and seconds instead of minutes
set -euo pipefail
cd "$(dirname "$0")/.."

belay=build/release/belay
home=quickstart
minutes=3
layers=6 hidden=256 heads=8 kv_heads=4 ffn=704 vocab=8192 seq_len=256
micro_batch=8 lr=3e-3 most_steps=4000 eval_batches=20
if [ "${1:-}" = --short ]; then
  home=quickstart/short
  layers=2 hidden=64 heads=4 kv_heads=2 ffn=192 vocab=2048 seq_len=128
  micro_batch=4 lr=3e-3 most_steps=60 eval_batches=4
elif [ $# -gt 0 ]; then
  echo "usage: scripts/quickstart.sh [--short]" >&2
  exit 2
fi
run=$home/run
resumed=$home/resumed
mkdir -p "$home"

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
# field NAME FILE: that number of every record that has it, one a line, after the step.
field() { sed -n "s/^{\"step\":\([0-9]*\),.*\"$1\":\([^,}]*\).*/\1 \2/p" "$2"; }

say "1. A corpus: English and Chinese pages from Debian packages"
scripts/fetch_corpus.sh quickstart/corpus

say "2. A tokenizer of $vocab ids, and the text as tokens; 2% of the pages held out"
"$belay" pack --tokenizer "train:$vocab" --append-eod --out "$home/data/train" \
  --val-out "$home/data/val" --val-share 0.02 --overwrite \
  quickstart/corpus/english.jsonl quickstart/corpus/chinese.jsonl

# config STEPS SNAPSHOT_EVERY EVAL_EVERY
config() {
  cat <<TOML
[model]
family = "llama"
layers = $layers
hidden = $hidden
heads = $heads
kv_heads = $kv_heads
ffn = $ffn
seq_len = $seq_len
tie_embeddings = true

[data]
train = "$home/data/train"
val = "$home/data/val"

[train]
steps = $1
micro_batch = $micro_batch
dtype = "$dtype"
eval_every = $3
eval_batches = $eval_batches
snapshot_every = $2

[optimizer]
lr = $lr
min_lr = 1e-4
schedule = "cosine"
warmup_steps = $(($1 / 20))
weight_decay = 0.1
TOML
}

# bf16 pays where the processor multiplies it natively.
dtype=f32
if grep -q avx512_bf16 /proc/cpuinfo; then dtype=bf16; fi

say "3. How fast is this machine? A few steps tell how many fit in $minutes minutes"
config 12 0 0 >"$home/rate.toml"
rm -rf "$home/rate"
"$belay" --quiet train "$home/rate.toml" --out "$home/rate" >/dev/null
step_ms=$(field step_ms "$home/rate/metrics.jsonl" | sed -n '5,$p' | cut -d' ' -f2 | sort -g |
  sed -n 4p)
steps=$(awk -v ms="$step_ms" -v minutes="$minutes" -v most="$most_steps" 'BEGIN {
  steps = int(minutes * 60000 / ms / 10) * 10
  if (steps < 40) steps = 40
  if (steps > most) steps = most
  print steps }')
echo "$step_ms ms a step in $dtype: training for $steps steps"

say "4. Training"
before_end=10 # steps after the snapshot that will be repeated
config "$steps" $((steps - before_end)) $((steps / 5)) >"$home/config.toml"
rm -rf "$run" "$resumed"
"$belay" train "$home/config.toml" --out "$run"

say "5. Held-out text"
"$belay" eval "$run" --data "$home/data/val" --batches $((eval_batches * 5))

say "6. Resume from the snapshot of step $((steps - before_end)): the same losses again"
snapshot=$(printf '%s/snapshots/step-%08d' "$run" $((steps - before_end)))
"$belay" --quiet train "$home/config.toml" --out "$resumed" --resume "$snapshot" >/dev/null
field loss "$run/metrics.jsonl" | tail -n "$before_end" >"$home/losses.first"
field loss "$resumed/metrics.jsonl" | tail -n "$before_end" >"$home/losses.again"
printf '%8s  %-20s  %-20s\n' step "first run" "resumed run"
paste -d' ' "$home/losses.first" "$home/losses.again" |
  awk '{ printf "%8s  %-20s  %-20s\n", $1, $2, $4 }'
if ! cmp -s "$home/losses.first" "$home/losses.again"; then
  echo "quickstart: the resumed run differs from the first: this is a bug, please report it" >&2
  exit 1
fi
echo "equal to the last digit"

say "7. What it writes"
for prompt in "To open a document, " "The package manager " "要打开文件，" "选择"; do
  echo
  "$belay" generate "$run" --prompt "$prompt" --max-tokens 60 --temperature 0.7 --top-k 40 --seed 1
done

say "8. The loss curve"
"$belay" watch "$run" --svg "$home/loss.svg"

cat <<TEXT

Everything lies under $home/ (delete it freely):
  run/metrics.jsonl      every step: loss, rates, times, memory
  run/snapshots/         weights as safetensors, and all it takes to resume
  run/plan.json          memory and kernels as planned, and the predicted step time
  config.toml            the configuration; run/config.toml has every key with its meaning
  loss.svg               the loss curve
What to try next:
  $belay generate $run --prompt "Debian is " --max-tokens 100
  $belay train $home/config.toml --out $home/longer --set train.steps=$((steps * 5))
  $belay train --help, and docs/guide.md for all the rest
TEXT
