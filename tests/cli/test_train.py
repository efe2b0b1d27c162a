from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli.conftest import Command

from mlap.models import load
from mlap.names import ARCHITECTURES
from mlap.nn import CONVS
from mlap.training import Recipe

FAST = ("--layers", 2, "--width", 8, "--epochs", 2, "--threads", 1)


def test_train_then_evaluate(mlap: Command, tiny: Path) -> None:
    trained = mlap("train", tiny, *FAST, "--out", "run", "--json")
    assert trained.code == 0
    assert trained.err == ""
    result = trained.json
    assert result["recipe"]["layers"] == 2
    assert result["metric"] == "error_rate"
    again = mlap("evaluate", "run", "--split", "valid", "--json")
    assert again.code == 0
    assert again.json["score"] == result["valid_score"]
    assert again.json["same_data"] is True
    assert mlap("evaluate", "run", "--json").json["score"] == result["test_score"]
    everything = mlap("evaluate", "run", "--split", "all")
    assert everything.out.startswith("54 graphs of synthetic-variant (all)\n")
    assert re.search(r"^error rate +\d\.\d{4}$", everything.out, re.MULTILINE)
    assert re.search(r"^log loss +\d\.\d{4}$", everything.out, re.MULTILINE)
    assert re.fullmatch(r"\d\.\d{4}\n", mlap("evaluate", "run", "--quiet").out)


def test_what_people_see(mlap: Command, tiny: Path) -> None:
    answer = mlap("train", tiny, *FAST, "--no-graph-norm", "--architecture", "jk-max", "--seed", 3)
    assert answer.code == 0
    lines = answer.err.splitlines()
    assert lines[0] == "synthetic-variant: 54 graphs"
    assert lines[1:3] == ["  classes: 9 classes of 6 each", "  split: train 43, valid 6, test 5"]
    lines = [line for line in lines if not line.startswith("  ")]  # some parts lack a class, and say so
    assert lines[1] == "jk-max, 2 layers, no normalisation, width 8, seed 3"
    assert lines[2] == "writing to runs/synthetic-variant/jk-max-L2-none-s3 (device cpu, 1 thread)"
    assert re.fullmatch(r"this will take about \d+\.\d s", lines[3])
    assert re.match(r"epoch 1/2  loss \d\.\d{4}  validation error rate \d\.\d{4}  \(best ", lines[4])
    assert re.match(r"epoch \d: validation error rate \d\.\d{4}, test error rate \d\.\d{4}", answer.out)
    assert load("runs/synthetic-variant/jk-max-L2-none-s3").recipe.seed == 3


def test_a_data_set_of_the_paper_gets_the_papers_recipe(mlap: Command, tiny: Path) -> None:
    """The packed set is a variant of the paper's `synthetic`, so its batch size and learning rate are the paper's."""
    recipe = mlap("train", tiny, *FAST, "--out", "run", "--json").json["recipe"]
    assert (recipe["batch_size"], recipe["lr"], recipe["lr_decay"]) == (50, 1e-3, 0.2)


def test_compile_reaches_the_training_and_not_the_recipe(mlap: Command, tiny: Path) -> None:
    """Seen by the one recipe that it refuses, before anything is compiled."""
    answer = mlap("train", tiny, *FAST, "--compile", "--set", "norm=batch", "--out", "run")
    assert answer.code == 2
    assert "compiled training pads batches" in answer.err
    assert not Path("run").exists()


def test_every_option_reaches_the_recipe(mlap: Command, tiny: Path) -> None:
    options = "--architecture mlap-weighted --layers 1 --graph-norm --width 4 --epochs 1 --batch-size 7 --lr 0.5"
    options += " --dropout 0.25 --backbone gcn --seed 9 --set lr_decay=0.75 --set residual=true"
    options += " --metric mcc --class-weight balanced --patience 4"
    recipe = mlap("train", tiny, *options.split(), "--out", "run", "--json").json["recipe"]
    assert recipe == Recipe().as_dict() | {
        "architecture": "mlap-weighted",
        "layers": 1,
        "width": 4,
        "backbone": "gcn",
        "norm": "graph",
        "residual": True,
        "dropout": 0.25,
        "epochs": 1,
        "batch_size": 7,
        "lr": 0.5,
        "lr_decay": 0.75,
        "lr_decay_every": 15,
        "weight_decay": 0.0,
        "seed": 9,
        "select_metric": "mcc",
        "class_weight": "balanced",
        "patience": 4,
    }


def test_resume_needs_only_the_run(mlap: Command, tiny: Path) -> None:
    first = mlap("train", tiny, *FAST, "--out", "run", "--json").json
    (Path("run") / "result.json").unlink()
    again = mlap("train", "--resume", "--out", "run", "--json")
    assert again.code == 0
    assert again.json == first
    assert json.loads((Path("run") / "result.json").read_text())["valid_score"] == first["valid_score"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--architecture", "mlap-sun"], "unknown architecture 'mlap-sun'; did you mean 'mlap-sum'"),
        (["--layers", "0"], "--layers must be at least 1, got 0"),
        (["--set", "lrr=1"], "unknown field of a recipe 'lrr'; did you mean 'lr'"),
        (["--set", "lr"], "--set takes KEY=VALUE, got 'lr'"),
        (["--dropout", "2"], "--dropout must be at most 1, got 2.0"),
        (["--resume"], "--resume needs the run directory, --out DIR"),
        (["--device", "gpu"], "--device must be auto, cpu, cuda, cuda:<number> or mps, got 'gpu'"),
        (["--layers", "many"], "Invalid value for '--layers' / '-l'"),
        (["--no-such-option"], "No such option: --no-such-option"),
    ],
)
def test_a_wrong_call_is_one_line_and_code_2(mlap: Command, tiny: Path, arguments: list[str], message: str) -> None:
    answer = mlap("train", tiny, *arguments)
    assert answer.error.startswith(message)
    assert answer.code == 2
    assert not Path("runs").exists()


def test_a_data_set_that_does_not_exist(mlap: Command) -> None:
    answer = mlap("train", "ogbg-molhvi")
    assert answer.code == 2
    assert "'ogbg-molhiv'" in answer.error
    assert mlap("train", "no/such/file.csv").code == 2


def test_no_data_set(mlap: Command) -> None:
    answer = mlap("train")
    assert (answer.code, answer.error.partition(",")[0]) == (2, "name a DATASET to train on")


def test_a_run_that_is_there_already(mlap: Command, tiny: Path) -> None:
    assert mlap("train", tiny, *FAST, "--out", "run").code == 0
    answer = mlap("train", tiny, *FAST, "--out", "run", "--quiet")
    assert answer.code == 2
    assert answer.error.startswith("run already holds a run; continue it")
    answer = mlap("train", "--resume", "--out", "run", "--lr", 9, "--quiet")
    assert answer.code == 2
    assert answer.error.startswith("run was started with --lr 0.001, now got 9.0")


def test_a_damaged_checkpoint(mlap: Command, tiny: Path) -> None:
    mlap("train", tiny, *FAST, "--out", "run")
    checkpoint = Path("run") / "last.ckpt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:500])
    answer = mlap("train", "--resume", "--out", "run", "--quiet")
    assert answer.code == 1
    assert answer.error.startswith("run/last.ckpt is damaged")


def test_a_missing_run(mlap: Command) -> None:
    answer = mlap("evaluate", "nowhere")
    assert answer.code == 2
    assert answer.error.startswith("there is no run directory nowhere")


def test_a_split_that_does_not_exist(mlap: Command, tiny: Path) -> None:
    mlap("train", tiny, *FAST, "--out", "run")
    answer = mlap("evaluate", "run", "--split", "tset")
    assert answer.code == 2
    assert answer.error == "--split must be train, valid, test or all, got 'tset'"


def test_help_names_every_architecture_and_backbone(mlap: Command) -> None:
    text = " ".join(mlap("train", "--help").out.split())
    words = {word.strip(",.") for word in re.sub("(?<=mlap-|..jk-) ", "", text).split()}  # of words that were broken
    assert set(ARCHITECTURES) | set(CONVS) <= words


def test_help_and_version(mlap: Command) -> None:
    for arguments in (["--help"], ["train", "--help"], ["evaluate", "--help"], ["data", "--help"]):
        answer = mlap(*arguments)
        assert answer.code == 0
        assert "Usage: mlap" in answer.out
    assert re.fullmatch(r"mlap \d+\.\d+\.\d+\n", mlap("--version").out)
    assert mlap("trian").error.startswith("No such command 'trian'. Did you mean 'train'?")
