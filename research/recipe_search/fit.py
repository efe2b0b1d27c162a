"""Train one network and score it on validation graphs by three rules: last epoch, averaged weights, best epoch."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from network import Batch, Config, Network
from numpy.typing import NDArray
from sets import SearchSet
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional as F

EVAL_BATCH = 256
AVERAGED = 0.1  # the weights are averaged over about the last tenth of the steps


@dataclass
class Fitted:
    """What a run left behind: scores on the validation graphs, and its outputs there."""

    last: float
    ema: float
    best: float  # the epoch chosen on one half of the validation graphs and scored on the other, both ways
    last_halves: float  # the last epoch scored the same way, for comparison with `best`
    train_loss: float
    seconds: float
    outputs: NDArray[np.float64]  # (2, graphs): logits or values, last epoch and averaged weights
    history: list[float]


def fit(data: SearchSet, train: NDArray[np.int64], valid: NDArray[np.int64], config: Config, seed: int) -> Fitted:
    """Train on `train` with the given seed."""
    started = time.perf_counter()
    torch.manual_seed(seed)
    rng = np.random.RandomState(seed)
    extra = data.descriptors(config.descriptors, train) if config.descriptors else None
    mean_size = float(np.diff(data.graphs.node_ptr)[train].mean())
    num_extra = 0 if extra is None else extra.shape[1]
    network = Network(config, data.node_rows, data.edge_columns, mean_size, num_extra)
    optimiser = make_optimiser(network, config)
    steps_per_epoch = max(1, len(train) // config.batch)
    steps = steps_per_epoch * config.epochs
    decay = 1 - 1 / max(1.0, AVERAGED * steps)
    averaged = copy.deepcopy(network)
    y = data.graphs.y[train, 0].astype(np.float64)
    centre, spread = (y.mean(), y.std()) if data.regression else (0.0, 1.0)
    batches = [
        data.batch(part, config.rwse, extra) for part in np.array_split(valid, math.ceil(len(valid) / EVAL_BATCH))
    ]
    truth = data.graphs.y[valid, 0].astype(np.float64)
    curve: list[NDArray[np.float64]] = []
    loss_sum = 0.0
    step = 0
    for epoch in range(config.epochs):
        network.train()
        order, loss_sum = rng.permutation(train), 0.0
        # The rest of a division is shared out, so that no batch is too small for BatchNorm.
        for part in np.array_split(order, steps_per_epoch):
            batch = data.batch(part, config.rwse, extra)
            for group in optimiser.param_groups:
                group["lr"] = config.lr * rate(step, steps, config)
            loss_sum += update(network, batch, config, optimiser, (batch.y - centre) / spread, data.regression)
            # Averages start as plain means, so that the first weights do not linger.
            blend(averaged, network, min(decay, (1 + step) / (10 + step)))
            step += 1
        if epoch % 2 == 1 or epoch == config.epochs - 1 or config.epochs <= 30:
            curve.append(predict(network, batches) * spread + centre)
    outputs = np.stack([curve[-1], predict(averaged, batches) * spread + centre])
    halves = np.arange(len(valid)) % 2 == 0
    if not data.regression:  # each half with the same share of each class
        halves[np.argsort(truth, kind="stable")] = np.arange(len(valid)) % 2 == 0
    best, last_halves = honest(curve, truth, halves, data.regression)
    return Fitted(
        last=score(truth, outputs[0], data.regression),
        ema=score(truth, outputs[1], data.regression),
        best=best,
        last_halves=last_halves,
        train_loss=loss_sum / steps_per_epoch,
        seconds=time.perf_counter() - started,
        outputs=outputs,
        history=[score(truth, c, data.regression) for c in curve],
    )


def make_optimiser(network: Network, config: Config) -> torch.optim.Optimizer:
    """AdamW whose weight decay spares what has one dimension; or Adam as in OGB's examples."""
    if config.optimiser == "adam":
        return torch.optim.Adam(network.parameters(), lr=config.lr)
    matrices = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.lr, fused=True)


def rate(step: int, steps: int, config: Config) -> float:
    """The learning rate's factor: a linear rise, then a cosine to 0, or constant."""
    rise = config.warmup * steps
    if step < rise:
        return (step + 1) / (rise + 1)
    if config.schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1.0, steps - rise)))


def update(
    network: Network, batch: Batch, config: Config, optimiser: torch.optim.Optimizer, target: Tensor, regression: bool
) -> float:
    """One step; with FLAG several passes, each with node embeddings pushed up the loss."""
    optimiser.zero_grad(set_to_none=True)
    if not config.flag:
        loss = loss_of(network(batch), target, config, regression)
        loss.backward()
    else:
        size = 1e-2
        nudge = torch.empty(len(batch.x), config.width).uniform_(-size, size).requires_grad_()
        for _ in range(config.flag):
            loss = loss_of(network(batch, nudge), target, config, regression) / config.flag
            loss.backward()
            nudge = (nudge.detach() + size * nudge.grad.sign()).requires_grad_()
        loss = loss * config.flag
    if config.clip:
        torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip)
    optimiser.step()
    return float(loss.detach())


def loss_of(out: Tensor, target: Tensor, config: Config, regression: bool) -> Tensor:
    """The loss of a batch."""
    if regression:
        return F.huber_loss(out, target) if config.loss == "huber" else F.mse_loss(out, target)
    if config.smoothing:
        target = target * (1 - config.smoothing) + 0.5 * config.smoothing
    return F.binary_cross_entropy_with_logits(out, target)


@torch.no_grad()
def blend(averaged: Network, network: Network, decay: float) -> None:
    """Move the averaged weights, and BatchNorm's statistics, a little towards the present ones."""
    torch._foreach_lerp_(list(averaged.parameters()), list(network.parameters()), 1 - decay)
    for mine, theirs in zip(averaged.buffers(), network.buffers(), strict=True):
        if mine.is_floating_point():
            mine.lerp_(theirs, 1 - decay)


@torch.no_grad()
def predict(network: Network, batches: list[Batch]) -> NDArray[np.float64]:
    """The outputs for some batches, without dropout."""
    network.eval()
    return torch.cat([network(batch) for batch in batches]).numpy().astype(np.float64)


def score(truth: NDArray[np.float64], output: NDArray[np.float64], regression: bool) -> float:
    """RMSE or ROC-AUC."""
    if regression:
        return float(np.sqrt(np.mean((truth - output) ** 2)))
    return float(roc_auc_score(truth, output))


def honest(
    curve: list[NDArray[np.float64]], truth: NDArray[np.float64], half: NDArray[np.bool_], regression: bool
) -> tuple[float, float]:
    """The score of the epoch that the other half chose, and of the last epoch, as means over both halves."""
    best, last = [], []
    for mine in (half, ~half):
        others = [score(truth[~mine], out[~mine], regression) for out in curve]
        chosen = int(np.argmin(others) if regression else np.argmax(others))
        best.append(score(truth[mine], curve[chosen][mine], regression))
        last.append(score(truth[mine], curve[-1][mine], regression))
    return float(np.mean(best)), float(np.mean(last))
