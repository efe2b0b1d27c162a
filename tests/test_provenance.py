"""Which sources made a result, against what git itself says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mlap
from mlap import provenance

GIT = shutil.which("git")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit."""
    if GIT is None:
        pytest.skip("git is not installed")
    package = tmp_path / "repository" / "src" / "mlap"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("x = 1\n")
    (package / "inner" / "code.py").write_text("y = 2\n")
    root = tmp_path / "repository"
    git(root, "init", "--quiet", "--initial-branch", "work/on-it")
    commit(root)
    return root


def git(folder: Path, *arguments: str) -> str:
    assert GIT is not None
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run([GIT, *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "change")


def package(root: Path) -> Path:
    return root / "src" / "mlap"


def test_the_commit_is_what_git_says(checkout: Path, tmp_path: Path) -> None:
    assert provenance._commit_of(package(checkout)) == git(checkout, "rev-parse", "HEAD")
    git(checkout, "pack-refs", "--all")
    assert not (checkout / ".git" / "refs" / "heads" / "work" / "on-it").exists()
    assert provenance._commit_of(package(checkout)) == git(checkout, "rev-parse", "HEAD")
    (package(checkout) / "more.py").touch()
    commit(checkout)  # a loose reference beside an older packed one
    assert provenance._commit_of(package(checkout)) == git(checkout, "rev-parse", "HEAD")

    tree = tmp_path / "tree"
    git(checkout, "worktree", "add", "--quiet", "-b", "other", str(tree), "HEAD~1")
    assert provenance._commit_of(package(tree)) == git(tree, "rev-parse", "HEAD")
    assert git(tree, "rev-parse", "HEAD") != git(checkout, "rev-parse", "HEAD")
    git(tree, "checkout", "--quiet", "--detach")
    assert provenance._commit_of(package(tree)) == git(tree, "rev-parse", "HEAD")


def test_no_commit_where_there_is_no_checkout(checkout: Path, tmp_path: Path) -> None:
    installed = checkout / "venv" / "site-packages" / "mlap"
    shutil.copytree(package(checkout), installed)
    assert provenance._commit_of(installed) is None
    (checkout / ".git" / "HEAD").write_text("ref: refs/heads/nothing\n")
    assert provenance._commit_of(package(checkout)) is None
    (checkout / ".git" / "HEAD").unlink()
    assert provenance._commit_of(package(checkout)) is None


def test_the_digest_is_that_of_the_sources(checkout: Path, tmp_path: Path) -> None:
    first = provenance._digest_of(package(checkout))
    shutil.copytree(package(checkout), tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "notes.txt").write_text("not code")
    (tmp_path / "elsewhere" / "__init__.py").write_bytes(b"x = 1\r\n")
    assert provenance._digest_of(tmp_path / "elsewhere") == first
    (tmp_path / "elsewhere" / "inner" / "code.py").write_text("y = 3\n")
    changed = provenance._digest_of(tmp_path / "elsewhere")
    assert changed != first
    (tmp_path / "elsewhere" / "inner" / "code.py").rename(tmp_path / "elsewhere" / "inner" / "other.py")
    assert provenance._digest_of(tmp_path / "elsewhere") not in (first, changed)


def test_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    digest, _, commit = provenance.source_id().partition("@")
    assert digest == provenance.source_digest()
    assert (len(digest), set(digest) <= set("0123456789abcdef")) == (12, True)
    root = Path(mlap.__file__).parents[2]
    if GIT is not None and (root / ".git").exists():
        assert git(root, "rev-parse", "HEAD").startswith(commit)
        assert len(commit) == 12
    assert provenance.made_by() == f"mlap {mlap.__version__} {provenance.source_id()}"


def test_nothing_heavy_is_loaded() -> None:
    code = "import sys, mlap.provenance; mlap.provenance.source_id(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
