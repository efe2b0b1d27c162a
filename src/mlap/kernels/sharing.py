"""Where rows are alike, one of them can stand for all: among features, among nodes in a layer, among any rows.

There are often far fewer kinds of bonds than bonds. And a node's step depends on its own kind and on the kinds of its
neighbours and of the arcs from them, in no order. In the first step, among molecules in a batch, there are far fewer
such environments than nodes; without features there is one per degree. As long as nothing random happens in between,
environments are the kinds of the next step (this is colour refinement, after Weisfeiler and Leman): a quarter of the
atoms of molecules never differ from some other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mlap.kernels.loops import Array, array, compiled, tensor
from mlap.kernels.threads import fork, threads_for
from mlap.nn.encoders import CategoryEncoder

#: what is the same for several rows is computed once if no more than this fraction of all has to be computed then
WORTH_SHARING = 0.9
#: up to so many combinations of categories are all encoded, whichever occur
FEW = 256
#: up to so many combinations have numbers that fit in 64 bits
COUNTABLE = 2**62
#: instead of the kinds of arcs where all are alike
NO_KIND = np.empty(0, np.int64)


# ---- features ----------------------------------------------------------------------------------------------------


class Kinds(NamedTuple):
    """Which combinations of categories occur among some items.

    Args:
        present: the numbers of those combinations, ascending; `None` stands for all that are possible.
        kind: which of them each item has.
    """

    present: Tensor | None
    kind: Tensor


class Items:
    """The features of some items, nodes or arcs, and which of them are alike, found once for all encoders.

    Args:
        features: one row per item, or `None`.
    """

    def __init__(self, features: Tensor | None) -> None:
        self.features = features
        self._kinds: dict[tuple[int, ...], Kinds | None] = {}

    def encoded(self, encoder: nn.Module, may_replace: bool) -> tuple[Tensor, Tensor | None]:
        """The vectors of an encoder, and which of them each item has; `None` if each has its own, or all the same."""
        kinds = self.kinds(encoder) if may_replace else None
        if kinds is None:
            return encoder(self.features), None
        assert isinstance(encoder, CategoryEncoder)
        return _vectors(encoder, kinds.present), kinds.kind

    def kinds(self, encoder: nn.Module) -> Kinds | None:
        """The kinds of items that an encoder tells apart, if it tells by categories and they can be numbered."""
        if not isinstance(encoder, CategoryEncoder):
            return None
        sizes = encoder.cardinalities
        if sizes not in self._kinds:
            self._kinds[sizes] = _kinds(sizes, encoder.checked(self.features))
        return self._kinds[sizes]


def _kinds(sizes: tuple[int, ...], features: Tensor) -> Kinds | None:
    combinations = math.prod(sizes)
    if combinations > COUNTABLE:
        return None
    kind = (features * _strides(sizes)).sum(-1)
    return Kinds(None, kind) if combinations <= FEW else Kinds(*torch.unique(kind, return_inverse=True))


def _vectors(encoder: CategoryEncoder, present: Tensor | None) -> Tensor:
    """The vectors of combinations of categories, given by their numbers, or of all."""
    if present is None:
        return _all_combinations(encoder.cardinalities, encoder.tables.dtype) @ encoder.tables
    categories = _categories(encoder.cardinalities, present)
    return F.embedding_bag(categories + encoder.offsets, encoder.tables, mode="sum")


@cache
def _strides(sizes: tuple[int, ...]) -> Tensor:
    return torch.tensor([math.prod(sizes[column + 1 :]) for column in range(len(sizes))])


def _categories(sizes: tuple[int, ...], combinations: Tensor) -> Tensor:
    """The category in each column, for combinations given by their numbers."""
    return combinations.unsqueeze(-1) // _strides(sizes) % torch.tensor(sizes)


@cache
def _all_combinations(sizes: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A row of zeros and ones for each combination of categories: which rows of the tables are added."""
    with torch.inference_mode(False):
        offsets = torch.tensor([sum(sizes[:column]) for column in range(len(sizes))])
        categories = _categories(sizes, torch.arange(math.prod(sizes)))
        return F.one_hot(categories + offsets, sum(sizes)).sum(1).to(dtype)


# ---- nodes in a layer --------------------------------------------------------------------------------------------


class Environments(NamedTuple):
    """The different environments of some nodes.

    Args:
        first: the first node of every environment `(K,)`.
        of_node: the environment of every node `(N,)`.
    """

    first: Tensor
    of_node: Tensor


def environments(kind: Tensor, edge_kind: Tensor | None, edge_index: Tensor) -> Environments:
    """The environments of all nodes.

    Environments are told apart by 64-bit hashes: that two of a batch of a million share one by accident has a
    probability of about 3e-8.

    Args:
        kind: the kind of each node `(N,)`.
        edge_kind: the kind of each arc, or `None` if all are alike.
        edge_index: `(2, arcs)`, sources and targets.
    """
    source, target = array(edge_index)
    kinds = NO_KIND if edge_kind is None else array(edge_kind)
    first, of_node = number_environments(array(kind), kinds, source, target)
    return Environments(tensor(first), tensor(of_node))


@compiled
def number_environments(kind: Array, edge_kind: Array, source: Array, target: Array) -> tuple[Array, Array]:
    """The first node `(K,)` of each environment, and the environment of every node `(N,)`."""
    nodes = len(kind)
    own = np.empty(nodes, np.uint64)
    heard = np.zeros(nodes, np.uint64)
    for n in range(nodes):
        own[n] = _mixed(np.uint64(kind[n]))
    for k in range(len(source)):  # a sum of hashes stands for a multiset
        message = own[source[k]]
        heard[target[k]] += _mixed(message + np.uint64(edge_kind[k])) if len(edge_kind) else message
    hashes = np.empty(nodes, np.uint64)
    for n in range(nodes):
        hashes[n] = _mixed(own[n] + _mixed(heard[n]))
    table, mask = _empty_table(nodes)
    first = np.empty(nodes, np.int64)
    of_node = np.empty(nodes, np.int64)
    found = 0
    for n in range(nodes):
        place = np.int64(hashes[n] & np.uint64(mask))
        while table[place] >= 0 and hashes[first[table[place]]] != hashes[n]:
            place = (place + 1) & mask
        if table[place] < 0:
            table[place] = found
            first[found] = n
            found += 1
        of_node[n] = table[place]
    return first[:found], of_node


@compiled
def _mixed(value: int) -> int:
    """A pseudo-random number for a number of 64 bits: the steps of the generator splitmix64."""
    mixed = np.uint64(value + np.uint64(0x9E3779B97F4A7C15))
    mixed = np.uint64((mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9))
    mixed = np.uint64((mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB))
    return mixed ^ (mixed >> np.uint64(31))  # type: ignore[return-value]


@compiled
def _empty_table(rows: int) -> tuple[Array, int]:
    """Where the number of a kind can be found by its hash, at that place or the next free one; and a mask of places."""
    size = 2
    while size < 2 * rows:
        size *= 2
    return np.full(size, -1), size - 1


# ---- any rows ----------------------------------------------------------------------------------------------------


def once_per_kind(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A function of every row of `x`, which is given equal rows once only where there are many.

    Without gradients: those of equal rows would all be given to one of them.
    """
    first, kind = equal_rows(array(x).view(np.uint32), threads_for(x.numel()))
    if len(first) > WORTH_SHARING * len(kind):
        return function(x)
    return function(x.index_select(0, tensor(first))).index_select(0, tensor(kind))


@compiled
def equal_rows(words: Array, threads: int) -> tuple[Array, Array]:
    """The first row `(K,)` of each kind of equal rows of 32-bit words, and the kind of every row `(N,)`."""
    hashes = np.empty(len(words), np.uint32)
    fork(_hash_rows, len(words), threads, (words, hashes))
    table, mask = _empty_table(len(words))
    first = np.empty(len(words), np.int64)
    kind = np.empty(len(words), np.int64)
    kinds = 0
    for n in range(len(words)):
        place = hashes[n] & mask
        while table[place] >= 0 and not _equal(words[first[table[place]]], words[n]):
            place = (place + 1) & mask
        if table[place] < 0:
            table[place] = kinds
            first[kinds] = n
            kinds += 1
        kind[n] = table[place]
    return first[:kinds], kind


@compiled
def _hash_rows(part: int, first: int, last: int, words: Array, hashes: Array) -> None:
    for n in range(first, last):
        total = np.uint32(0)
        for c in range(words.shape[1]):
            mixed = np.uint32(np.uint32(words[n, c] ^ np.uint32(words[n, c] >> np.uint32(15))) * np.uint32(0x85EBCA6B))
            total = np.uint32(total + np.uint32(mixed * np.uint32(np.uint32(c) * np.uint32(0x9E3779B2) + np.uint32(1))))
        hashes[n] = total ^ np.uint32(total >> np.uint32(16))


@compiled
def _equal(row: Array, other: Array) -> bool:
    differences = np.uint32(0)
    for c in range(len(row)):
        differences |= row[c] ^ other[c]
    return bool(differences == 0)
