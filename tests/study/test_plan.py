"""Plans: grids of recipes, named, from options and from files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlap.errors import DataError, MlapError, UsageError
from mlap.names import ARCHITECTURES
from mlap.paper import PROTOCOLS
from mlap.study.plan import PAPER_ARCHITECTURES, Plan
from mlap.training import Recipe


def test_the_papers_protocol_has_14000_networks() -> None:
    plans = {name: Plan.of(name, "paper") for name in PROTOCOLS}
    assert sum(map(len, plans.values())) == 14_000  # SPEC.md, section 3
    recipes = plans["ogbg-molhiv"].recipes()
    assert len(set(recipes)) == len(recipes) == 4200
    assert {recipe.epochs for recipe in recipes} == {50}
    assert {recipe.norm for recipe in recipes} == {"none", "graph"}
    assert {recipe.seed for recipe in plans["ogbg-ppa"].recipes()} == set(range(10))


def test_without_any_change_the_plan_is_the_one_default_recipe() -> None:
    assert Plan.of("mine").recipes() == [Recipe()]
    assert Plan.of("ogbg-molhiv").recipes() == [Recipe.paper("ogbg-molhiv")]


def test_the_seed_varies_last() -> None:
    recipes = Plan.of("mine", architecture="naive,mlap-sum", layers="1-3", seed="0-1").recipes()
    assert [recipe.seed for recipe in recipes] == 6 * [0] + 6 * [1]
    assert [recipe.replace(seed=1) for recipe in recipes[:6]] == recipes[6:]


@pytest.mark.parametrize(
    ("field", "value", "values"),
    [
        ("layers", "1-3,5, 7 - 8", (1, 2, 3, 5, 7, 8)),
        ("layers", [1, "3-4", 3], (1, 3, 4)),
        ("seed", range(3), (0, 1, 2)),
        ("lr", "1e-3,1e-4", (1e-3, 1e-4)),
        ("lr", 1, (1.0,)),
        ("residual", "true,false", (True, False)),
        ("norm", "none,graph,none", ("none", "graph")),
        ("architecture", "paper", PAPER_ARCHITECTURES),
        ("architecture", "all", tuple(ARCHITECTURES)),
        ("architecture", ["mlap-max", "paper"], ("mlap-max", *PAPER_ARCHITECTURES)),
        ("architecture", "mlap-sum", ("mlap-sum",)),
    ],
)
def test_values(field: str, value: object, values: tuple[object, ...]) -> None:
    assert Plan.of("mine", **{field: value}).axes[field] == values


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": "0-3"}, "layers must be at least 1, got 0"),
        ({"layers": "3-1"}, "layers: the range 3-1 must rise"),
        ({"layers": "one"}, "layers must be a whole number, got 'one'"),
        ({"layers": ""}, "layers must be a whole number, got ''"),
        ({"layers": []}, "layers needs at least one value"),
        ({"seed": "0-99999999999"}, "seed: the range 0-99999999999 must rise, and by less than 1,000,000"),
        ({"seed": "0-9999", "layers": "1-1000"}, "the plan has 10,000,000 runs"),
        ({"architecture": "mlap-summ"}, "unknown architecture 'mlap-summ'; did you mean 'mlap-sum'"),
        ({"depth": 3}, "unknown field of a recipe 'depth'"),
        ({"width": True}, "width must be a whole number, got True"),
    ],
)
def test_wrong_values_are_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Plan.of("mine", **changes)


def test_the_papers_plan_is_for_its_data_only() -> None:
    with pytest.raises(UsageError, match="no protocol for 'NCI1'"):
        Plan.of("NCI1", "paper")


def test_a_variant_of_the_synthetic_set_takes_the_papers_protocol() -> None:
    assert Plan.of("synthetic-variant", "paper") == Plan.of("synthetic", "paper")


def test_a_change_overrides_a_plan() -> None:
    plan = Plan.of("synthetic", "paper", seed="0-4", epochs=2)
    assert len(plan) == 7 * 10 * 2 * 5
    assert plan.axes["epochs"] == (2,)
    assert plan.name == "paper"


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "depth.toml"
    path.write_text('architecture = ["naive", "mlap-sum"]\nlayers = "1-3"\nnorm = "graph"\nseed = [0, 7]\nlr = 1e-2\n')
    plan = Plan.of("synthetic", path)
    assert plan.name == "depth.toml"
    assert len(plan) == 12
    assert all(recipe.lr == 0.01 and recipe.epochs == 65 for recipe in plan.recipes())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"layrs = 3", "unknown field of a recipe 'layrs'; did you mean 'layers'"),
        (b"[layers]\nfrom = 1", "layers must be a value or a list of values, got a table"),
        (b"layers = ", "is not a plan in TOML"),
        (b"layers = 1\nlayers = 2", "is not a plan in TOML"),
        (b"# \xff", "is not a plan in TOML"),
        (b"layers = [[1]]", "layers must be a whole number"),
        (b"layers = 1979-05-27", "layers must be a whole number"),
    ],
)
def test_malformed_files_are_one_clear_error(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_bytes(text)
    with pytest.raises(MlapError, match=message) as caught:
        Plan.of("mine", path)
    assert isinstance(caught.value, UsageError | DataError)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no plan 'papper'; known: paper, quick"):
        Plan.of("mine", "papper")
    with pytest.raises(UsageError, match="cannot read the plan"):
        Plan.of("mine", tmp_path)


@given(
    layers=st.lists(st.integers(1, 30), min_size=1, unique=True),
    lr=st.lists(st.floats(0, 100, allow_subnormal=False), min_size=1, max_size=3, unique=True),
    residual=st.lists(st.booleans(), min_size=1, unique=True),
    architecture=st.lists(st.sampled_from(ARCHITECTURES), min_size=1, unique=True),
)
def test_a_printed_plan_is_a_plan_file(
    tmp_path_factory: pytest.TempPathFactory,
    layers: list[int],
    lr: list[float],
    residual: list[bool],
    architecture: list[str],
) -> None:
    plan = Plan.of("mine", layers=layers, lr=lr, residual=residual, architecture=architecture)
    path = tmp_path_factory.mktemp("plans") / "plan.toml"
    path.write_text(plan.to_toml())
    assert Plan.of("another", path).axes == plan.axes
    assert len(plan) == len(plan.recipes()) == len(layers) * len(lr) * len(residual) * len(architecture)
