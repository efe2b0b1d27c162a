"""The folders that `mlap` keeps things in."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def data_root() -> Path:
    """Where data sets are kept unless the caller says otherwise: `$MLAP_DATA`, or a folder of the user's cache."""
    if chosen := os.environ.get("MLAP_DATA"):
        return Path(chosen).expanduser()
    return user_folder()


def user_folder() -> Path:
    """The folder `mlap` in the user's cache."""
    return _user_cache() / "mlap"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
