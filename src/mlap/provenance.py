"""Which `mlap` made a result: the version says too little while the code changes between releases.

The digest of the source files is the identity: two installations with the same digest run the same code, whether from
a checkout or from a wheel. The commit, where there is a checkout, says where to find that code.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

import mlap

_LENGTH = 12
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@cache
def source_id() -> str:
    """The sources of this `mlap`: `DIGEST@COMMIT` in a git checkout, `DIGEST` elsewhere.

    A checkout with changes that are not committed has another digest than its commit.
    """
    digest, commit = source_digest(), _commit_of(_package())
    return digest if commit is None else f"{digest}@{commit[:_LENGTH]}"


@cache
def source_digest() -> str:
    """The beginning of a SHA-256 over the package's Python files and their names."""
    return _digest_of(_package())


def made_by() -> str:
    """The version and the sources of this `mlap` in one word for tables.

    >>> made_by().startswith("mlap 0.")
    True
    """
    return f"mlap {mlap.__version__} {source_id()}"


def _package() -> Path:
    return Path(mlap.__file__).resolve().parent


def _digest_of(package: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(package.rglob("*.py"), key=lambda path: path.relative_to(package).as_posix()):
        content = path.read_bytes().replace(b"\r\n", b"\n")  # git may check files out with either line ending
        found.update(f"{path.relative_to(package).as_posix()}\0{len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()[:_LENGTH]


def _commit_of(package: Path) -> str | None:
    """The commit of the checkout that holds a package as `src/NAME`, read from git's own files."""
    git = package.parent.parent / ".git"
    if package.parent.name != "src" or not git.exists():
        return None  # a .git further up is not about this package: a virtual environment may lie in any checkout
    try:
        if git.is_file():  # of a worktree or submodule: it names the real folder
            git = (git.parent / git.read_text(encoding="utf-8").strip().removeprefix("gitdir: ")).resolve()
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if _COMMIT.fullmatch(head):
            return head
        reference = head.removeprefix("ref: ")
        shared = git / "commondir"
        common = (git / shared.read_text(encoding="utf-8").strip()).resolve() if shared.exists() else git
        return _loose(common / reference) or _packed(common / "packed-refs", reference)
    except (OSError, ValueError):
        return None


def _loose(path: Path) -> str | None:
    commit = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    return commit if _COMMIT.fullmatch(commit) else None


def _packed(path: Path, reference: str) -> str | None:
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    commits = (line.partition(" ") for line in lines)
    return next((commit for commit, _, name in commits if name == reference and _COMMIT.fullmatch(commit)), None)
