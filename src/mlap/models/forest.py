"""Random forests: scikit-learn grows them, a few flat arrays keep them, numpy walks them.

A tree is kept without its leaves among the nodes: a child `c >= 0` is another inner node, a child `c < 0` is the leaf
`-1 - c`. So half of scikit-learn's entries vanish, and what is read from a file can be checked completely: children
lie behind their parent (so no walk can circle) and no two nodes share one. No object of scikit-learn is stored, so a
forest reads the same under every version of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts load when they are used, so predictions by networks do not wait for them
from numpy.typing import NDArray

from mlap.errors import DataError
from mlap.models._arrays import take

Array = NDArray[Any]

#: rows that walk down the trees together: enough to make numpy's calls cheap, few enough to stay in the cache
ROWS = 4096


@dataclass(frozen=True, eq=False)
class Forest:
    """The trees of a random forest.

    Args:
        roots: `(trees,)` int32, where each tree begins: a node, or `-1 - leaf` of a tree that is a single leaf.
        children: `(nodes, 2)` int32, where rows go whose feature is at most the threshold, and where the others go.
        feature: `(nodes,)` int32, the column that a node looks at.
        threshold: `(nodes,)` float64.
        value: `(leaves, outputs)` float64: the probability of *yes*, of each class, or the mean of the target.
        num_features: the columns of the matrices that it reads.
    """

    roots: NDArray[np.int32]
    children: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    value: NDArray[np.float64]
    num_features: int

    @property
    def num_trees(self) -> int:
        """The number of trees."""
        return len(self.roots)

    def predict(self, features: Any) -> NDArray[np.float64]:
        """The mean over the trees, `(rows, outputs)`.

        Args:
            features: `(rows, num_features)`, dense or sparse; read as float32, as scikit-learn does.
        """
        if features.shape[1] != self.num_features:
            raise DataError(f"got {features.shape[1]} features; the forest was grown on {self.num_features}")
        out = np.zeros((features.shape[0], self.value.shape[1]))
        for start, block in _dense_blocks(features):
            total = out[start : start + len(block)]
            for root in self.roots:  # in their order: the sum is then scikit-learn's to the last bit
                total += self.value.take(self._leaves(block, root), axis=0)
        out /= self.num_trees
        return out

    def _leaves(self, block: NDArray[np.float32], root: int) -> NDArray[np.int64]:
        """The leaf at which each row ends in one tree; rows that have arrived walk no further."""
        found = np.empty(len(block), np.int64)
        rows = np.arange(len(block))
        first = rows * self.num_features  # where each row begins in the flat block
        flat, children = block.ravel(), self.children.ravel()
        at = np.full(len(block), root, np.int64)
        while True:
            arrived = at < 0
            if arrived.any():
                found[rows[arrived]] = -1 - at[arrived]
                going = ~arrived
                rows, first, at = rows[going], first[going], at[going]
            if not len(rows):
                return found
            right = flat.take(first + self.feature.take(at)) > self.threshold.take(at)
            at = children.take(2 * at + right).astype(np.int64)

    def arrays(self, prefix: str = "") -> dict[str, Array]:
        """What to store, by name."""
        names = ("roots", "children", "feature", "threshold", "value")
        return {f"{prefix}{name}": getattr(self, name) for name in names}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array], num_features: int, outputs: int, prefix: str = "") -> Forest:
        """The forest in stored arrays, or a `DataError` if they are not one."""
        forest = cls(
            take(arrays, f"{prefix}roots", "int32", None),
            take(arrays, f"{prefix}children", "int32", None, 2),
            take(arrays, f"{prefix}feature", "int32", None),
            take(arrays, f"{prefix}threshold", "float64", None),
            take(arrays, f"{prefix}value", "float64", None, outputs),
            num_features,
        )
        forest._check()
        return forest

    def _check(self) -> None:
        nodes, leaves = len(self.children), len(self.value)
        if not len(self.feature) == len(self.threshold) == nodes:
            raise DataError(f"a forest of {nodes} nodes has {len(self.feature)} features, {len(self.threshold)} cuts")
        if nodes and not 0 <= self.feature.min() <= self.feature.max() < self.num_features:
            raise DataError(f"a node of the forest looks at a feature that is not among {self.num_features}")
        if (self.children.max(axis=1, initial=-1) >= nodes).any():
            raise DataError(f"a node of the forest leads beyond its {nodes} nodes")
        if ((self.children >= 0) & (self.children <= np.arange(nodes)[:, None])).any():
            raise DataError("a node of the forest leads back to itself or to one before it")
        # Every node and every leaf is reached from exactly one place.
        reached = np.sort(np.concatenate((self.roots, self.children.ravel())))
        if not len(self.roots) or not np.array_equal(reached, np.arange(-leaves, nodes)):
            raise DataError(f"the {nodes} nodes and {leaves} leaves of the forest do not form {len(self.roots)} trees")

    @classmethod
    def of_trees(cls, trees: Sequence[Any], values: Sequence[Array], num_features: int) -> Forest:
        """The forest of scikit-learn's trees.

        Args:
            trees: its `Tree` objects, of which the public arrays are read.
            values: `(entries, outputs)` of each tree: what a leaf predicts, by its entry there.
            num_features: the columns of the training matrix.
        """
        roots, children, features, thresholds, leaf_values = [], [], [], [], []
        nodes = leaves = 0
        for tree, value in zip(trees, values, strict=True):
            is_leaf = tree.children_left < 0
            name = np.empty(len(is_leaf), np.int32)  # entry of scikit-learn's → ours
            name[~is_leaf] = nodes + np.arange(np.count_nonzero(~is_leaf))
            name[is_leaf] = -1 - leaves - np.arange(np.count_nonzero(is_leaf))
            inner = np.flatnonzero(~is_leaf)
            roots.append(name[0])
            children.append(np.stack((name[tree.children_left[inner]], name[tree.children_right[inner]]), axis=1))
            features.append(tree.feature[inner].astype(np.int32))
            thresholds.append(tree.threshold[inner].astype(np.float64))
            leaf_values.append(value[is_leaf])
            nodes += len(inner)
            leaves += len(is_leaf) - len(inner)
        return cls(
            np.array(roots, np.int32),
            np.concatenate(children),
            np.concatenate(features),
            np.concatenate(thresholds),
            np.concatenate(leaf_values),
            num_features,
        )

    @classmethod
    def constant(cls, value: Sequence[float], num_features: int) -> Forest:
        """A forest of a single leaf, for a target of which there is nothing to learn."""
        return cls(
            np.array([-1], np.int32),
            np.zeros((0, 2), np.int32),
            np.zeros(0, np.int32),
            np.zeros(0),
            np.array([value], np.float64),
            num_features,
        )


def grow_forest(kind: str, features: Any, y: Array, num_classes: int, *, n_jobs: int = 1, **settings: Any) -> Forest:
    """Grow a forest for one target.

    Args:
        kind: `"binary"`, `"multiclass"` or `"regression"`.
        features: `(rows, columns)`, dense or sparse, finite.
        y: `(rows,)` labels, all known.
        num_classes: how many classes there are, for `"multiclass"`; some of them may not occur in `y`.
        n_jobs: trees that grow at the same time; the forest is the same for every number.
        settings: of scikit-learn's `RandomForestClassifier` or `RandomForestRegressor`.
    """
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    width = features.shape[1]
    if kind == "regression":
        grown = RandomForestRegressor(n_jobs=n_jobs, **settings).fit(features, y)
        trees = [member.tree_ for member in grown.estimators_]
        return Forest.of_trees(trees, [tree.value[:, 0, :] for tree in trees], width)
    outputs = 1 if kind == "binary" else num_classes
    classes = np.unique(y).astype(np.int64)
    if len(classes) == 1:
        return Forest.constant([float(classes[0])] if kind == "binary" else np.eye(outputs)[classes[0]], width)
    grown = RandomForestClassifier(n_jobs=n_jobs, **settings).fit(features, y.astype(np.int64))
    trees = [member.tree_ for member in grown.estimators_]
    values = []
    for tree in trees:
        fractions = tree.value[:, 0, :]
        if kind == "binary":
            values.append(fractions[:, 1:])
        else:
            values.append(np.zeros((len(fractions), outputs)))
            values[-1][:, classes] = fractions
    return Forest.of_trees(trees, values, width)


def _dense_blocks(features: Any) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Some rows at a time as a dense matrix, with the number of the first."""
    for start in range(0, features.shape[0], ROWS):
        block = features[start : start + ROWS]
        block = block.toarray() if scipy.sparse.issparse(block) else block
        block = np.ascontiguousarray(block, dtype=np.float32)
        if not np.isfinite(block).all():
            raise DataError(f"the features of rows {start} to {start + len(block) - 1} are not all finite numbers")
        yield start, block
