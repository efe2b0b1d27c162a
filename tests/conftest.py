"""What all tests share: reproducible hypothesis, one torch thread, and the folder of real data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings

if TYPE_CHECKING:
    from report_pages import Made

#: --doctest-modules would import these as modules, and two of one name do not go together
collect_ignore_glob = ["conftest.py", "*/conftest.py"]

settings.register_profile("mlap", derandomize=True, deadline=None)
settings.load_profile("mlap")
torch.set_num_threads(1)


#: fixture → the marker of every test that needs it
_MARKERS = {"shared_data": "data", "cluster": "ray", "browser": "browser"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they need, so that no mark is forgotten."""
    for item in items:
        for fixture, marker in _MARKERS.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets: `MLAP_TEST_DATA`, by default `../shared/data` beside the checkout."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("MLAP_TEST_DATA") or beside)
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set MLAP_TEST_DATA to the folder that holds ogbg_molhiv, NCI1, …")
    return folder


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A report on a tiny real study, made once for all tests."""
    from report_pages import real_report

    return real_report(tmp_path_factory.mktemp("report"))
