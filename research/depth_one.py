"""Are the paper's seven architectures one network at depth 1? Its own numbers answer.

    python -m research.depth_one

With one level there is nothing to join: unless an architecture has a part that the others have not, all seven are the
same network there, and their published validation scores differ by chance only. For every architecture, data set and
normalisation, `z` is the difference between its mean and the mean of the other six, in standard errors. `chi_squared`
is the sum of z² over the eight cells of an architecture and `p` how often chance makes it larger; `p_of_seven` is
corrected for asking seven times. Nothing is trained. Writes `research/results/depth_one.csv`.
"""

from __future__ import annotations

import math
from typing import Any

from scipy import stats

from benchmarks.records import made_by, write
from mlap.paper import PROTOCOLS
from mlap.report.published import published_validation
from mlap.statistics import Summary, bonferroni


def main() -> None:
    cells: dict[tuple[str, str], dict[str, Summary]] = {}
    for dataset in PROTOCOLS:
        for cell in published_validation(dataset) or ():
            if cell.layers == 1:
                cells.setdefault((dataset, cell.norm), {})[cell.architecture] = cell.valid
    architectures = list(next(iter(cells.values())))
    rows: list[dict[str, Any]] = []
    for name in architectures:
        z = {f"{dataset}, {norm}": apart(name, scores) for (dataset, norm), scores in cells.items()}
        chi_squared = sum(value**2 for value in z.values())
        p = float(stats.chi2.sf(chi_squared, len(z)))
        shown = {f"z: {cell}": round(value, 2) for cell, value in z.items()}
        rows.append({"architecture": name, **shown, "chi_squared": round(chi_squared, 1), "p": p})
    for row, corrected in zip(rows, bonferroni([row["p"] for row in rows]), strict=True):
        row |= {"p": f"{row['p']:.2g}", "p_of_seven": f"{corrected:.2g}"}
        print(*row.values(), sep="  ")
    write("depth_one.csv", rows, made_by("scipy"))


def apart(name: str, scores: dict[str, Summary]) -> float:
    """How far an architecture's mean is from that of the others, in standard errors of the difference."""
    others = [score for other, score in scores.items() if other != name]
    mean = math.fsum(score.mean for score in others) / len(others)
    error = math.hypot(*(score.standard_error or 0.0 for score in others)) / len(others)
    return (scores[name].mean - mean) / math.hypot(scores[name].standard_error or 0.0, error)


if __name__ == "__main__":
    main()
