"""The sets of the search, read by mlap, and their splits. No function here returns a test graph.

Held out for good: OGB's test part, and for TU sets the test part of mlap's own split (random, 8:1:1, seed 0).
The rest is split anew into train and valid, several times: molecules so that the two share no scaffold (the large
groups stay in train, as in OGB's split), other graphs at random with the shares of the classes kept.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from network import Batch
from numpy.typing import NDArray
from torch import Tensor

from mlap import load_graphs
from mlap.graphs.graph_set import GraphSet
from mlap.graphs.splits import stratified_split

Indices = NDArray[np.int64]
DATA = Path("../shared/data")
CACHE = Path("build/recipe_search")
FOLDERS = {
    "bace": "ogbg_molbace",
    "bbbp": "ogbg_molbbbp",
    "esol": "ogbg_molesol",
    "hiv": "ogbg_molhiv",
    "nci1": "NCI1",
    "nci83": "NCI83",
    "mutag": "Mutagenicity",
    "tox21": "Tox21_MMP_training",
}
TU_VALID = 0.25  # of what is not held out


class SearchSet:
    """A graph set without its test graphs' labels in reach: `split` and `batch` are all that the search uses."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.graphs: GraphSet = load_graphs(str(DATA / FOLDERS[name]))
        self.regression = self.graphs.task.kind == "regression"
        self.rest = np.sort(np.concatenate([self.graphs.split("train"), self.graphs.split("valid")]))
        nodes, edges = self.graphs.node_features, self.graphs.edge_features
        self._offsets = np.concatenate(([0], np.cumsum(nodes.cardinalities)))
        self.node_rows = int(self._offsets[-1])
        self._x = torch.from_numpy(nodes.values.astype(np.int64) + self._offsets[:-1])
        if edges is None:
            self._kind = np.zeros(self.graphs.num_edges, dtype=np.int64)
            self.edge_columns = torch.zeros(1, 1, dtype=torch.long)
        else:
            offsets = np.concatenate(([0], np.cumsum(edges.cardinalities)))[:-1]
            kinds, self._kind = np.unique(edges.values, axis=0, return_inverse=True)
            self._kind = self._kind.reshape(-1)
            self.edge_columns = torch.from_numpy(kinds.astype(np.int64) + offsets)
        self._walks: dict[int, Tensor] = {}

    def split(self, number: int, train_size: int | None = None) -> tuple[Indices, Indices]:
        """Train and valid indices of the re-split `number`; 0 is OGB's own for molecules with scaffolds."""
        if self.graphs.ids is not None:
            if number == 0:
                return self.graphs.split("train"), self.graphs.split("valid")
            train, valid = self._scaffold_split(number)
        else:
            parts = stratified_split(self.graphs.y[self.rest, 0], number, (1 - TU_VALID, TU_VALID, 0.0))
            train, valid = self.rest[parts["train"]], self.rest[parts["valid"]]
        if train_size is not None and train_size < len(train):
            train = np.sort(np.random.RandomState(number).permutation(train)[:train_size])
        return train, valid

    def _scaffold_split(self, number: int) -> tuple[Indices, Indices]:
        scaffolds = scaffolds_of(self.name, [self.graphs.ids[i] for i in self.rest])
        groups: dict[str, list[int]] = {}
        for index, scaffold in zip(self.rest, scaffolds, strict=True):
            groups.setdefault(scaffold, []).append(int(index))
        small = [group for _, group in sorted(groups.items()) if len(group) <= 0.05 * len(self.rest)]
        valid: list[int] = []
        for place in np.random.RandomState(number).permutation(len(small)):
            if len(valid) < 0.2 * len(self.rest):
                valid += small[place]
        return np.setdiff1d(self.rest, valid), np.sort(np.array(valid))

    def batch(self, indices: Indices, rwse: int = 0, extra: Tensor | None = None) -> Batch:
        """The graphs as one batch, with arcs sorted by target."""
        g = self.graphs
        node_rows = concatenated(g.node_ptr, indices)
        edge_rows = concatenated(g.edge_ptr, indices)
        sizes = g.node_ptr[indices + 1] - g.node_ptr[indices]
        counts = g.edge_ptr[indices + 1] - g.edge_ptr[indices]
        shift = np.repeat(np.cumsum(sizes) - sizes, counts)
        ends = g.edges[:, edge_rows].astype(np.int64) + shift
        source, target = np.concatenate([ends[0], ends[1]]), np.concatenate([ends[1], ends[0]])
        order = np.argsort(target, kind="stable")
        kind = np.tile(self._kind[edge_rows], 2)[order]
        batch = Batch(
            self._x[torch.from_numpy(node_rows)],
            torch.from_numpy(source[order]),
            torch.from_numpy(target[order]),
            torch.from_numpy(kind),
            torch.from_numpy(np.repeat(np.arange(len(indices)), sizes)),
            len(indices),
        )
        batch.y = torch.from_numpy(g.y[indices, 0].astype(np.float32))
        if rwse:
            batch.walks = self.walks(rwse)[torch.from_numpy(node_rows)]
        if extra is not None:
            batch.extra = extra[torch.from_numpy(indices)]
        return batch

    def walks(self, steps: int) -> Tensor:
        """The return probabilities of random walks of 1 to `steps` steps, for each node of the set."""
        if steps not in self._walks:
            g = self.graphs
            rows = []
            for start, stop, first, last in zip(g.node_ptr, g.node_ptr[1:], g.edge_ptr, g.edge_ptr[1:], strict=False):
                n = stop - start
                adjacency = np.zeros((n, n), dtype=np.float32)
                a, b = g.edges[0, first:last], g.edges[1, first:last]
                adjacency[a, b] = adjacency[b, a] = 1
                walk = adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1)
                power, columns = np.eye(n, dtype=np.float32), []
                for _ in range(steps):
                    power = power @ walk
                    columns.append(power.diagonal().copy())
                rows.append(np.stack(columns, 1))
            self._walks[steps] = torch.from_numpy(np.concatenate(rows))
        return self._walks[steps]

    def descriptors(self, kind: str, train: Indices) -> Tensor:
        """Graph features `(graphs, columns)`, standardised by the training graphs; constant columns are left out."""
        raw = descriptors_of(self.name, list(self.graphs.ids), kind)
        if kind == "morgan":
            raw = np.log1p(raw)
        mean, std = raw[train].mean(0), raw[train].std(0)
        keep = std > 1e-6
        scaled = (raw[:, keep] - mean[keep]) / std[keep]
        if kind == "morgan":  # thousands of rare bits: as many units of variance as there are bits would drown the rest
            scaled = raw[:, keep]
        return torch.from_numpy(np.clip(scaled, -5, 5).astype(np.float32))


@cache
def search_set(name: str) -> SearchSet:
    """A set by its short name."""
    return SearchSet(name)


def concatenated(pointer: Indices, indices: Indices) -> Indices:
    """The rows of several graphs, one after the other."""
    starts, counts = pointer[indices], pointer[indices + 1] - pointer[indices]
    return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())


def scaffolds_of(name: str, smiles: list[str]) -> list[str]:
    """The Bemis–Murcko scaffold of each molecule, without chirality."""
    from rdkit.Chem import MolFromSmiles
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    def find() -> Any:
        return np.array([MurckoScaffoldSmiles(mol=MolFromSmiles(s), includeChirality=False) for s in smiles])

    return [str(s) for s in cached(f"{name}-scaffolds", find)]


def descriptors_of(name: str, smiles: list[str], kind: str) -> NDArray[np.float64]:
    """RDKit's 2D descriptors, Morgan's environments of radius 2 in 2048 columns (counts or bits), or MACCS keys."""
    from rdkit.Chem import Descriptors, MACCSkeys, MolFromSmiles, rdFingerprintGenerator

    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    row = {
        "rdkit": lambda m: np.array([f(m) for _, f in Descriptors._descList]),
        "morgan": generator.GetCountFingerprintAsNumPy,
        "morgan-bits": generator.GetFingerprintAsNumPy,
        "maccs": lambda m: np.array(MACCSkeys.GenMACCSKeys(m)),
    }[kind]

    def table() -> Any:
        found = np.stack([row(MolFromSmiles(s)) for s in smiles]).astype(np.float64)
        return np.clip(np.nan_to_num(found, nan=0, posinf=0, neginf=0), -1e6, 1e6)

    result: NDArray[np.float64] = cached(f"{name}-{kind}", table)
    return result


def cached(key: str, make: Any) -> Any:
    """An array, computed once for all processes."""
    path = CACHE / f"{key}.npy"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        np.save(path, make())
    return np.load(path)
