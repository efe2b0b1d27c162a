"""The scripts of research, benchmarks, the demo and the examples: each can at least be imported."""

from __future__ import annotations

import csv
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
SCRIPTS = sorted(
    path for folder in ("research", "benchmarks", "scripts", "examples") for path in (TOP / folder).rglob("*.py")
)

#: imports every script of the list under a name of its own, as `python script.py` would find what it imports itself
_IMPORT = """
import importlib.util, sys, traceback
from pathlib import Path
sys.path.insert(0, sys.argv[1])
wrong = []
for number, script in enumerate(sys.argv[2:]):
    sys.path.insert(0, str(Path(script).parent))
    before = set(sys.modules)
    try:
        spec = importlib.util.spec_from_file_location(f"script_{number}", script)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    except Exception:
        wrong.append(script)
        traceback.print_exc()
    del sys.path[0]
    for name in set(sys.modules) - before:  # two folders have modules of one name
        if "." not in name and Path(script).with_name(f"{name}.py").exists():
            del sys.modules[name]
sys.exit(bool(wrong))
"""


@pytest.mark.slow
def test_scripts_can_be_imported() -> None:
    assert len(SCRIPTS) > 20
    ended = subprocess.run(
        [sys.executable, "-c", _IMPORT, str(TOP), *map(str, SCRIPTS)], capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr


def test_demo_table_has_the_answer_it_claims(tmp_path: Path) -> None:
    chem = pytest.importorskip("rdkit.Chem")
    spec = importlib.util.spec_from_file_location("demo_table", TOP / "scripts" / "demo_table.py")
    assert spec is not None
    assert spec.loader is not None
    demo_table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo_table)
    demo_table.main(tmp_path)
    with (tmp_path / "molecules.csv").open() as file:
        rows = {row["smiles"]: row["active"] for row in csv.DictReader(file)}
    assert 100 < sum(label == "1" for label in rows.values()) < 1000
    amine, nitro = chem.MolFromSmarts("Nc"), chem.MolFromSmarts("O=[N+]c")
    for smiles, label in rows.items():  # another way to ask: one of its parts must be there at all
        molecule = chem.MolFromSmiles(smiles)
        if label == "1":
            assert molecule.HasSubstructMatch(amine) or molecule.HasSubstructMatch(nitro)
        elif molecule.HasSubstructMatch(nitro):
            raise AssertionError(smiles)
    with (tmp_path / "new-molecules.csv").open() as file:
        assert not {row["smiles"] for row in csv.DictReader(file)} & set(rows)
