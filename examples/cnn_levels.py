"""Multi-level attention pooling without graphs: the stages of a small CNN on scikit-learn's digits.

    python examples/cnn_levels.py                            # ten seeds, half a minute on one core
    python examples/cnn_levels.py --seeds 1 --epochs 3       # a look

Each stage of the CNN is a level; its "nodes" are the positions of its feature map, 64, 16 and 4 of them. Two readouts
are compared over seeds: attention pooling of the last stage alone, and `MultiLevelAttentionPooling` of all stages. The
picture shows where each stage looks.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F

from mlap.nn import MultiLevelAttentionPooling
from mlap.statistics import mann_whitney, summarise

CHANNELS = 16


class SmallCNN(nn.Module):
    """Three convolutions; `stages` says how many of the last of them are pooled."""

    def __init__(self, stages: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(1 if number == 0 else CHANNELS, CHANNELS, 3, stride=1 if number == 0 else 2, padding=1)
            for number in range(3)
        )
        self.stages = stages
        self.pooling = MultiLevelAttentionPooling(CHANNELS, num_levels=stages)
        self.head = nn.Linear(CHANNELS, 10)

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Logits `(B, 10)` of images `(B, 8, 8)`, and the attention of each pooled stage `(B, height, width)`."""
        h, maps = images.unsqueeze(1), []
        for conv in self.convs:
            h = conv(h).relu()
            maps.append(h)
        maps = maps[-self.stages :]
        # Positions are nodes: (B, c, height, width) → (B · height · width, c), and the image that each belongs to.
        levels = [h.permute(0, 2, 3, 1).flatten(0, 2) for h in maps]
        index = [torch.arange(len(h)).repeat_interleave(h[0, 0].numel()) for h in maps]
        pooled, attention = self.pooling(levels, index, dim_size=len(images), return_attention=True)
        return self.head(pooled), [a.view(len(h), *h.shape[2:]) for a, h in zip(attention, maps, strict=True)]


def train(stages: int, seed: int, epochs: int) -> tuple[float, SmallCNN, Tensor]:
    """The test accuracy of a trained network, the network, and the test images. The split is the same for all seeds."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    rest, test = train_test_split(range(len(images)), test_size=0.5, random_state=0, stratify=digits.target)
    torch.manual_seed(seed)
    network = SmallCNN(stages)
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    for _ in range(epochs):
        for batch in torch.tensor(rest)[torch.randperm(len(rest))].split(64):
            optimizer.zero_grad()
            F.cross_entropy(network(images[batch])[0], labels[batch]).backward()
            optimizer.step()
    network.eval()
    with torch.no_grad():
        right = network(images[test])[0].argmax(dim=1) == labels[test]
    return right.float().mean().item(), network, images[test]


def draw(network: SmallCNN, images: Tensor, path: Path) -> None:
    """Some images, and beside each where the stages of a network look."""
    with torch.no_grad():
        _, attention = network(images)
    figure, axes = plt.subplots(
        len(images), 1 + len(attention), figsize=(1.2 * (1 + len(attention)), 1.2 * len(images))
    )
    for row, image in enumerate(images):
        shown = [image, *(stage[row] for stage in attention)]
        names = ["digit", *(f"stage {number}" for number in range(1, 1 + len(attention)))]
        for cell, values, name in zip(axes[row], shown, names, strict=True):
            cell.imshow(values.numpy(), cmap="gray_r" if name == "digit" else "viridis", vmin=0)
            cell.set(xticks=[], yticks=[], title=name if row == 0 else "")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Compare both readouts, draw the attention, and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("cnn_levels.png"))
    asked = parser.parse_args(arguments)
    scores: dict[str, list[float]] = {"last stage": [], "all stages": []}
    for seed in range(asked.seeds):
        for name, stages in (("last stage", 1), ("all stages", 3)):
            accuracy, network, images = train(stages, seed, asked.epochs)
            scores[name].append(accuracy)
    draw(network, images[:6], asked.out)  # of the last seed, with all stages
    for name, found in scores.items():
        summary = summarise(found)
        error = "" if summary.standard_error is None else f" ± {summary.standard_error:.4f} (s.e.)"
        print(f"{name}: test accuracy {summary.mean:.4f}{error}, {asked.seeds} seeds")
    p = mann_whitney(scores["all stages"], scores["last stage"], higher_is_better=True).p_two_sided
    print(f"Mann–Whitney U, two-sided: p = {p:.3f}; attention per stage is in {asked.out}")
    return scores


if __name__ == "__main__":
    main()
