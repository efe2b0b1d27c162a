"""A recipe: everything that decides how one network is built and trained, apart from the data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from mlap.errors import UsageError, short, unknown
from mlap.names import ARCHITECTURES, BACKBONES, METRICS, NORMS, POOLINGS, TASKS
from mlap.nn.level_choice import LevelChoice
from mlap.paper import PROTOCOLS
from mlap.training.stages import FROZEN, Stage, parse_stages

#: field → the names it takes
_NAMES: dict[str, Collection[str]] = {
    "architecture": ARCHITECTURES,
    "backbone": BACKBONES,
    "norm": NORMS,
    "pooling": POOLINGS,
    "inner_norm": ("none", "batch"),
    "head": ("linear", "mlp"),
    "optimizer": ("adam", "adamw"),
    "schedule": ("step", "cosine"),
    "select": ("best", "last"),
    "class_weight": ("none", "balanced"),
    "select_metric": ("", *METRICS),
}
#: field → its smallest and largest value
_RANGES = {
    "layers": (1, 1000),
    "width": (1, 100_000),
    "dropout": (0, 1),
    "walk_features": (0, 1000),
    "epochs": (1, 1_000_000),
    "batch_size": (1, 10_000_000),
    "lr": (0, 100),
    "lr_decay": (0, 1),
    "lr_decay_every": (1, 1_000_000),
    "warmup": (0, 1_000_000),
    "weight_decay": (0, 100),
    "clip": (0, 1e9),
    "ema": (0, 0.999999),
    "patience": (0, 1_000_000),
    "seed": (0, 2**63 - 1),
    "level_dropout": (0, 0.99),
    "deep_supervision": (0, 1000),
    "flag": (0, 1000),
}


@dataclass(frozen=True)
class Recipe:
    """A frozen, validated description of one training run.

    Args:
        architecture: how levels become one vector per graph; one of `mlap.names.ARCHITECTURES`.
        layers: the number of message-passing layers L.
        width: the width d of node representations.
        backbone: the kind of message-passing layer: `gin`, `gcn` or `gat`.
        norm: the normalisation after each layer: `none`, `graph`, `batch`, `layer` or `pair`.
        residual: whether a layer adds its input to its output.
        dropout: the probability of dropout after every layer.
        epochs: how often the training graphs are seen.
        batch_size: graphs per training step.
        lr: the learning rate at the start, or after the warm-up.
        lr_decay: with the schedule `step`, the factor on the learning rate after every `lr_decay_every` epochs.
        lr_decay_every: see `lr_decay`.
        weight_decay: the L2 penalty of `adam`, the decoupled decay of `adamw`.
        seed: random seed for initial weights, shuffling and dropout; never of the data.
        optimizer: `adam` (the paper's) or `adamw`.
        schedule: `step` (the paper's) or `cosine`, which falls to zero at the last epoch.
        warmup: epochs in which the learning rate rises from zero (`cosine` only).
        clip: the largest norm of the gradient; 0 for no limit.
        ema: the decay of an exponential moving average of the weights, which then is what predicts; 0 for none.
        select: whose weights are kept: those of the `best` validation epoch (the paper's rule) or of the `last`.
        patience: stop after so many epochs without a better validation score; 0 to train them all.
        class_weight: `balanced` weighs every class by the inverse of its share among the training labels.
        select_metric: the score that selects epochs; empty for the data set's own.
        pooling: how nodes become one vector; one of `mlap.names.POOLINGS`.
        inner_norm: `none`, or `batch`: BatchNorm inside of the two-layer network of each `gin` layer, as OGB has it.
        input_level: whether the encoded nodes are a level too, level 0.
        virtual_node: whether each graph has a node that hears and tells all others, see `mlap.nn.VirtualNode`. Shares
            stay exact, but a level is no locality any more: from level 2 on, every node has heard of the whole graph.
        head: `linear`, or `mlp`, of which there are no exact shares.
        walk_features: the length of the longest random walk whose chance to end where it began is a feature of each
            node, see `mlap.graphs.walks`; 0 for none.
        descriptors: whether RDKit's descriptors of molecules are a term of the logits, see `DescriptorHead`.
        levels: which levels the readout reads: `1+3+5`, `last:2`, or `learned:0.01`, those that are worth this price in
            the loss; all unless given. See `mlap.nn.LevelChoice`.
        level_dropout: the probability that a graph (in a `jk-` network a node) lacks a level in a training step.
        stages: what is trained before the network as a whole, of the same epochs: `naive:20` is 20 epochs with the
            readout of `naive`, `naive:20+frozen:5` 5 more in which encoder and backbone stay; `naive:20:0.01` has a
            learning rate of its own. Each begins with the encoder, backbone and head of the one before.
        deep_supervision: what the mean loss of the levels, each alone, counts in the first epoch; it falls to nothing
            at the last.
        flag: the size of the steps of FLAG, adversarial noise on the encoded nodes, such as 0.001; 0 for none. A
            training step then takes three times as long. See `mlap.training.noise`.

    Example:
        >>> Recipe.paper("ogbg-molhiv", layers=3).lr
        0.0001
        >>> Recipe(layers=0)
        Traceback (most recent call last):
        ...
        mlap.errors.UsageError: layers must be at least 1, got 0
    """

    architecture: str = "mlap-sum"
    layers: int = 5
    width: int = 200
    backbone: str = "gin"
    norm: str = "graph"
    residual: bool = False
    dropout: float = 0.5
    epochs: int = 50
    batch_size: int = 50
    lr: float = 1e-3
    lr_decay: float = 0.5
    lr_decay_every: int = 15
    weight_decay: float = 0.0
    seed: int = 0
    optimizer: str = "adam"
    schedule: str = "step"
    warmup: float = 0.0
    clip: float = 0.0
    ema: float = 0.0
    select: str = "best"
    patience: int = 0
    class_weight: str = "none"
    select_metric: str = ""
    pooling: str = "attention"
    inner_norm: str = "none"
    input_level: bool = False
    virtual_node: bool = False
    head: str = "linear"
    walk_features: int = 0
    descriptors: bool = False
    levels: str = ""
    level_dropout: float = 0.0
    stages: str = ""
    deep_supervision: float = 0.0
    flag: float = 0.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, checked(field.name, getattr(self, field.name)))
        choice = LevelChoice.parse(self.levels)
        if choice.numbers or choice.last:
            choice.among(range(self.layers + 1))
        if self.architecture == "naive" and (self.levels or self.level_dropout):
            name = "levels" if self.levels else "level_dropout"
            raise UsageError("a naive network reads the last level alone: {field} is for others", name)
        if choice.price is not None and not self.architecture.endswith("-sum"):
            raise UsageError(f"{{field}} are learned for jk-sum and mlap-sum, not for {self.architecture}", "levels")
        taken = sum(stage.epochs for stage in parse_stages(self.stages))
        if taken >= self.epochs:
            raise UsageError(
                f"{{field}} take {taken} of {self.epochs} epochs: none is left for {self.architecture}", "stages"
            )

    @classmethod
    def paper(cls, dataset: str, **changes: Any) -> Recipe:
        """The paper's recipe for one of its four data sets, with the given fields changed."""
        if dataset not in PROTOCOLS:
            raise unknown("data set of the paper", dataset, PROTOCOLS, "dataset")
        return cls.of({**PROTOCOLS[dataset].recipe, **changes})

    @classmethod
    def preset(cls, dataset: str, **changes: Any) -> Recipe:
        """What sweeps start from: the paper's recipe for its data sets, and its general settings for others."""
        name = paper_name(dataset)
        return cls.paper(name, **changes) if name in PROTOCOLS else cls.of(changes)

    @classmethod
    def recommended(cls, kind: str, num_graphs: int, molecules: bool = False, **changes: Any) -> Recipe:
        """The recipe that we recommend, with the given fields changed.

        It was chosen on validation data of seven sets together (`research/recipe_search`). Classification keeps the
        last epoch, for few validation graphs choose badly. Regression has a pooling that can count, and keeps the best.

        Args:
            kind: `binary`, `multiclass` or `regression`.
            num_graphs: the number of training graphs. Small sets are seen more often, and very large ones less.
            molecules: whether there are SMILES, so that RDKit's descriptors can be a term of the logits.
            changes: fields to change.

        Example:
            >>> Recipe.recommended("regression", 1000).pooling, Recipe.recommended("binary", 1000).pooling
            ('attention-n', 'attention')
            >>> [Recipe.recommended("binary", number).epochs for number in (100, 1000, 30_000, 1_000_000)]
            [160, 40, 40, 5]
        """
        if kind not in TASKS:
            raise unknown("kind of task", kind, TASKS, "kind")
        fields: dict[str, Any] = {
            "layers": 5,
            "width": 64,
            "norm": "batch",
            "inner_norm": "batch",
            "dropout": 0.2,
            "pooling": "attention-n" if kind == "regression" else "attention",
            "descriptors": molecules,
            # At least about 400 steps, and at most about five million graphs to look at.
            "epochs": round(min(max(40, 40 * min(4.0, 640 / max(1, num_graphs))), max(5, 5e6 / max(1, num_graphs)))),
            "batch_size": 64,
            "optimizer": "adamw",
            "lr": 1e-3,
            "weight_decay": 0.01,
            "schedule": "cosine",
            "clip": 1.0,
            "select": "best" if kind == "regression" else "last",
        }
        if changes.get("backbone", "gin") != "gin":  # others have no network inside of a layer
            fields["inner_norm"] = "none"
        if "patience" in changes or "select_metric" in changes:  # who says how to choose an epoch wants one chosen
            fields["select"] = "best"
        recipe = cls.of({**fields, **changes})
        return recipe if "warmup" in changes else recipe.replace(warmup=recipe.epochs / 10)

    @classmethod
    def quick(cls, kind: str, num_graphs: int, molecules: bool = False, **changes: Any) -> Recipe:
        """A small network for a first look: about a minute for 2,000 molecules on two cores.

        The arguments are those of `recommended`.
        """
        epochs = max(2, min(20, 40_000 // max(1, num_graphs)))
        return cls.recommended(kind, num_graphs, molecules, **{"layers": 3, "width": 32, "epochs": epochs, **changes})

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Recipe:
        """A recipe of the given fields; values may be text, as on a command line. An unknown field is an error."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            if name not in known:
                raise unknown("field of a recipe", name, known, "settings")
        return cls(**fields)

    def replace(self, **changes: Any) -> Recipe:
        """The same recipe with some fields changed."""
        return Recipe.of({**self.as_dict(), **changes})

    def as_dict(self) -> dict[str, Any]:
        """All fields with their values."""
        return dataclasses.asdict(self)

    def stage_at(self, epoch: int) -> int:
        """The number of the stage, from 0, that an epoch, counted from 1, belongs to.

        >>> [Recipe(stages="naive:20+frozen:5").stage_at(epoch) for epoch in (1, 20, 21, 25, 26, 50)]
        [0, 0, 1, 1, 2, 2]
        """
        stages = parse_stages(self.stages)
        ends = [sum(stage.epochs for stage in stages[: number + 1]) for number in range(len(stages))]
        return sum(epoch > end for end in ends)

    def stage(self, number: int) -> Stage:
        """A stage, by its number; the last is the recipe's own network."""
        stages = parse_stages(self.stages)
        left = self.epochs - sum(stage.epochs for stage in stages)
        return (*stages, Stage(self.architecture, left))[number]

    def in_stage(self, number: int) -> Recipe:
        """The recipe of the network that is trained in a stage.

        With another readout, the backbone is that of the recipe's own network.
        """
        name = self.stage(number).name
        if name in (FROZEN, self.architecture):
            return self
        layers = max(LevelChoice.parse(self.levels).numbers, default=self.layers)
        return self.replace(architecture=name, layers=max(1, layers), levels="", level_dropout=0.0)

    @property
    def epochs_before(self) -> int:
        """The epochs before the recipe's own network is trained, frozen or not."""
        number = self.stage_at(self.epochs)
        while number and self.in_stage(number - 1) is self:
            number -= 1
        return sum(stage.epochs for stage in parse_stages(self.stages)[:number])

    def lr_at(self, epoch: int, step: int = 0, steps: int = 1) -> float:
        """The learning rate in an epoch, counted from 1, at one of its steps, counted from 0.

        >>> recipe = Recipe(lr=1.0, epochs=12, schedule="cosine", warmup=2)
        >>> [round(recipe.lr_at(epoch), 2) for epoch in (1, 2, 3, 8, 12)]
        [0.5, 1.0, 1.0, 0.5, 0.02]
        """
        own = self.stage(self.stage_at(epoch)).lr
        lr = self.lr if own is None else own
        if self.schedule == "step":
            return lr * self.lr_decay ** ((epoch - 1) // self.lr_decay_every)
        done = epoch - 1 + step / steps
        if done < self.warmup:  # reached at the end of a step: the first step is not lost at zero
            return lr * min(1.0, (done + 1 / steps) / self.warmup)
        left = (done - self.warmup) / max(self.epochs - self.warmup, 1e-9)
        return lr * 0.5 * (1 + math.cos(math.pi * min(1.0, left)))


def paper_name(dataset: str) -> str:
    """The name under which the paper's protocol knows a data set."""
    return "synthetic" if dataset == "synthetic-variant" else dataset


_TYPES: dict[str, type] = {
    field.name: {"str": str, "int": int, "float": float, "bool": bool}[str(field.type)]
    for field in dataclasses.fields(Recipe)
}


def checked(name: str, value: Any) -> Any:
    """The value of a field, in its type and its usual form; raises where no recipe could have it."""
    value = _typed(name, value)
    if name in _NAMES and value not in _NAMES[name]:
        raise unknown(name.replace("_", " "), value, filter(None, _NAMES[name]), name)
    if name in _RANGES:
        low, high = _RANGES[name]
        if value < low:
            raise UsageError(f"{{field}} must be at least {low}, got {short(value)}", name)
        if value > high or math.isnan(value):
            raise UsageError(f"{{field}} must be at most {high}, got {short(value)}", name)
    if name == "levels":
        return str(LevelChoice.parse(value))
    return "+".join(map(str, parse_stages(value))) if name == "stages" else value


def _typed(name: str, value: Any) -> Any:
    """The value in the field's type: as it is, or read from text."""
    wanted = _TYPES[name]
    if wanted is bool and isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)):
        return value
    if isinstance(value, str) and wanted in (int, float):
        try:
            return wanted(value)
        except ValueError:
            pass
    article = {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}[wanted]
    raise UsageError(f"{{field}} must be {article}, got {short(value)}", name)
