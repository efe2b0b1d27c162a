#!/usr/bin/env bash
# What `make demo` runs: a table of molecules with a known answer, then the paper's study on a reduced scale.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${BIN:-.venv/bin}
mlap() { "$bin/mlap" "$@"; }

cat <<'TEXT'

1. A table of molecules. 2,000 real molecules are "active" if they have an aromatic amine or nitro group.
   Does a network find that out?

TEXT
mkdir -p demo
"$bin/python" scripts/demo_table.py demo
mlap train demo/molecules.csv --target active --split-by scaffold --preset quick \
  --out demo/runs/molecules --overwrite --quiet
mlap predict demo/runs/molecules demo/new-molecules.csv --out demo/predictions.csv
echo
echo "Procaine has two amines; only the one on the ring counts. What each level adds to the logit, and which atoms most:"
mlap explain demo/runs/molecules "CCN(CC)CCOC(=O)c1ccc(N)cc1" --out demo/procaine

cat <<'TEXT'

2. The paper's study: three families of networks on the synthetic data set, on a REDUCED scale (width 32 instead of 200,
   5 epochs instead of 65, 3 seeds instead of 30). It shows how things work, not who wins.

TEXT
mlap sweep synthetic --plan quick --study demo/study.db --keep-models --quiet
mlap compare demo/study.db --table results
mlap report demo/study.db --out demo/report --tsne-graphs 200 --quiet > /dev/null

cat <<TEXT

Look at
  demo/procaine/graph-0.png   which atoms of procaine made it active, level by level
  demo/predictions.csv        100 new molecules with predictions beside the known answer
  demo/report/index.html      the study: who won, how depth matters, what each level knows
Open the explorer on the model of part 1, and ask it about molecules of your own:
  ${bin}/mlap serve demo/runs/molecules --open
TEXT
