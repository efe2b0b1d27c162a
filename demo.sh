#!/usr/bin/env bash
# What `make demo` runs: the main job of the paper on a reduced scale.
set -euo pipefail
cd "$(dirname "$0")"
mlap() { "${BIN:-.venv/bin}/mlap" "$@"; }

cat <<'TEXT'

mlap demo: the paper's synthetic data set and its three families of networks, on a REDUCED scale
(width 32 instead of 200, 5 epochs instead of 65, 3 seeds instead of 30): it shows how things work, not who wins.

TEXT
mlap data info synthetic
echo
mlap sweep synthetic --plan quick --study demo/study.db --keep-models
echo
mlap compare demo/study.db --table results
echo
mlap report demo/study.db --out demo/report --tsne-graphs 300
