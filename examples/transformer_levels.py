"""Multi-level attention pooling without graphs: the layers of a small transformer on sequences.

    python examples/transformer_levels.py                        # five seeds, half a minute on one core
    python examples/transformer_levels.py --seeds 1 --steps 20   # a look

A sequence of letters belongs to one of nine classes, as the paper's graphs do: by which of three letters is the most
frequent, which one position each can tell, and by which of three pairs occurs, for which neighbours have to be seen
together. Positions are nodes, and layers are levels. Pooling the last layer is compared with pooling all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mlap.nn import MultiLevelAttentionPooling
from mlap.statistics import mann_whitney, summarise

LETTERS, LENGTH, CHANNELS, LAYERS = 8, 10, 32, 3


def sequences(number: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sequences `(number, LENGTH)` and their classes."""
    x = torch.randint(5, LETTERS, (number, LENGTH), generator=generator)
    frequent = torch.randint(3, (number,), generator=generator)
    pair = torch.randint(3, (number,), generator=generator)
    places = torch.rand(number, LENGTH, generator=generator).argsort(dim=1)
    x.scatter_(1, places[:, :4], frequent[:, None].expand(-1, 4))  # letters 0, 1, 2
    for other in (1, 2):
        x.scatter_(1, places[:, 3 + other : 4 + other], ((frequent + other) % 3)[:, None])
    start = torch.randint(LENGTH - 2, (number,), generator=generator)[:, None]
    pairs = torch.tensor([[3, 4], [4, 3], [3, 3]])[pair]
    x.scatter_(1, start, pairs[:, :1]).scatter_(1, start + 1, pairs[:, 1:])
    return x, 3 * frequent + pair


class SmallTransformer(nn.Module):
    """A transformer whose last layers are pooled."""

    def __init__(self, pooled: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, CHANNELS)
        self.places = nn.Parameter(torch.randn(LENGTH, CHANNELS))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(CHANNELS, 4, 2 * CHANNELS, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(LAYERS)
        )
        self.pooled = pooled
        self.pooling = MultiLevelAttentionPooling(CHANNELS, num_levels=pooled)
        self.head = nn.Linear(CHANNELS, 9)

    def forward(self, x: Tensor) -> Tensor:
        """The logits `(B, 9)` of sequences `(B, LENGTH)`."""
        h, levels = self.letters(x) + self.places, []
        for layer in self.layers:
            h = layer(h)
            levels.append(h.flatten(0, 1))  # positions are nodes: (B · LENGTH, c)
        index = torch.arange(len(x)).repeat_interleave(LENGTH)
        logits: Tensor = self.head(self.pooling(levels[-self.pooled :], index, dim_size=len(x)))
        return logits


def train(pooled: int, seed: int, steps: int) -> float:
    """The test accuracy of a trained network."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    network = SmallTransformer(pooled)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(steps):
        x, y = sequences(64, generator)
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimizer.step()
    x, y = sequences(1000, torch.Generator().manual_seed(10_000))
    network.eval()
    with torch.no_grad():
        return (network(x).argmax(dim=1) == y).float().mean().item()


def main(arguments: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Compare both readouts and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=120)
    asked = parser.parse_args(arguments)
    scores = {
        name: [train(pooled, seed, asked.steps) for seed in range(asked.seeds)]
        for name, pooled in (("last layer", 1), ("all layers", LAYERS))
    }
    for name, found in scores.items():
        summary = summarise(found)
        error = "" if summary.standard_error is None else f" ± {summary.standard_error:.4f} (s.e.)"
        print(f"{name}: test accuracy {summary.mean:.4f}{error}, {asked.seeds} seeds")
    p = mann_whitney(scores["all layers"], scores["last layer"], higher_is_better=True).p_two_sided
    print(f"Mann–Whitney U, two-sided: p = {p:.3f}")
    return scores


if __name__ == "__main__":
    main()
