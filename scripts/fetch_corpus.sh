#!/bin/sh
# Fetches a corpus of modern English and Chinese prose from Debian packages, by name, and writes
# DIR/english.jsonl and DIR/chinese.jsonl, one page a line. The packages are unpacked, not
# installed. Usage: scripts/fetch_corpus.sh DIR
#
# The texts are free (MPL-2.0, GPL-2+, CC-BY-SA-3.0) and stay under their own licences.
set -eu
scripts=$(cd "$(dirname "$0")" && pwd)
target=${1:?usage: scripts/fetch_corpus.sh DIR}
packages="libreoffice-help-en-us libreoffice-help-zh-cn debian-reference-en debian-reference-zh-cn
debian-handbook"

if [ -s "$target/english.jsonl" ] && [ -s "$target/chinese.jsonl" ]; then
  echo "corpus: $target is complete already"
  exit 0
fi
mkdir -p "$target"
work=$(mktemp -d "$target/.fetch-XXXXXX")
trap 'rm -rf "$work"' EXIT
# apt's own user downloads, where apt runs as root.
chmod 755 "$work"
if [ "$(id -u)" = 0 ] && id _apt >/dev/null 2>&1; then chown _apt "$work"; fi

# The names are words of their own below.
# shellcheck disable=SC2086
echo "corpus: fetching" $packages
# shellcheck disable=SC2086
if ! (cd "$work" && apt-get download -q $packages >apt.log 2>&1); then
  cat "$work/apt.log" >&2
  echo "fetch_corpus: apt-get download failed; run 'apt-get update' and try again" >&2
  exit 3
fi
mkdir "$work/unpacked"
for package in "$work"/*.deb; do dpkg -x "$package" "$work/unpacked"; done

# A language's pages, by the two ways the packages spell it.
pages() {
  find "$work/unpacked/usr/share/libreoffice/help/$1/text" \
    "$work/unpacked/usr/share/doc/debian-handbook/html/$1" -name '*.html' | sort
  find "$work/unpacked/usr/share/debian-reference" -name "*.$2.html" | sort
}
pages en-US en | perl "$scripts/html_to_jsonl.pl" >"$work/english.jsonl"
pages zh-CN zh-cn | perl "$scripts/html_to_jsonl.pl" 0.3 >"$work/chinese.jsonl"
for language in english chinese; do
  if [ ! -s "$work/$language.jsonl" ]; then
    echo "fetch_corpus: found no $language pages; the packages' layout has changed" >&2
    exit 3
  fi
  mv "$work/$language.jsonl" "$target/$language.jsonl"
  echo "corpus: $target/$language.jsonl: $(wc -l <"$target/$language.jsonl") documents," \
    "$(wc -c <"$target/$language.jsonl") bytes"
done
