"""The cores of this machine, and the machines of a Ray cluster."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mlap.errors import MlapError, UsageError
from mlap.files import first_line

_REMEDY = "start one there (`ray start`), or name another"


def usable_cores() -> int:
    """How many processor cores this process may use, which on a shared machine are not all it has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def import_ray() -> Any:
    """The package `ray`, or an error that says how to install it."""
    try:
        import ray
    except ImportError:
        raise UsageError("a Ray cluster needs a package that is not installed: pip install 'mlap[ray]'") from None
    return ray


def connect(ray: Any, address: str) -> bool:
    """Connect this process to a cluster, unless it is connected; whether that was to be done."""
    if ray.is_initialized():
        return False
    where = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if where not in ("", "local"):
        _knock(where)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address == "local":
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            ray.init(address="local", num_cpus=usable_cores(), include_dashboard=False, **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        if where == "":
            raise MlapError(f"there is no Ray cluster on this machine; {_REMEDY}", "address", "local") from error
        raise MlapError(
            f"cannot connect to the Ray cluster at {where} ({first_line(error)}); does it have the same version of "
            "Ray, and this machine the cluster's token (RAY_AUTH_TOKEN), if it wants one?"
        ) from error
    return True


def _knock(address: str) -> None:
    """Raise unless something listens at an address; Ray itself would try for many minutes."""
    found = re.fullmatch(r"(ray://)?([^:/]+):(\d{1,5})", address)
    if found is None:
        raise UsageError(f"{{field}} must be auto, local, ray://HOST:PORT or HOST:PORT, got {address!r}", "address")
    client, host, port = found.groups()
    if client and importlib.util.find_spec("grpc") is None:
        raise UsageError(f"{address} needs a package that is not installed: pip install 'mlap[ray]'")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise MlapError(f"there is no Ray cluster at {address} ({error}); {_REMEDY}", "address", "local") from error


@contextmanager
def in_reach() -> Iterator[None]:
    """Say in one line that the cluster does not answer, if it does not."""
    try:
        yield
    except ConnectionError as error:
        raise MlapError(
            f"the Ray cluster is out of reach: {first_line(error)}; nothing is lost: run the same command to continue"
        ) from error


def last_line(error: Exception) -> str:
    """The last line of what Ray says of an error, which says most."""
    return str(error).strip().rpartition("\n")[2].strip() or type(error).__name__
