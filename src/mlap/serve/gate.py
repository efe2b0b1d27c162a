"""How work reaches the processor: a few threads, a bounded queue, a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from mlap.serve.limits import Limits
from mlap.serve.problems import busy

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4


class Gate:
    """Runs functions in threads, at most so many at once; what is too much is refused at once, not queued."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting = 0
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="mlap-serve")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a function, computed in a thread."""
        if self.waiting >= self.limits.waiting:
            raise busy(f"{self.limits.waiting} questions are waiting")
        self.waiting += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*args, **kwargs))
        # A thread cannot be stopped: its place is free when it ends, not when the asker is told to come again.
        future.add_done_callback(self._done)
        try:
            return await asyncio.wait_for(asyncio.shield(future), self.limits.seconds)
        except asyncio.TimeoutError:
            raise busy(f"the answer takes longer than {self.limits.seconds:g} s") from None

    def _done(self, future: asyncio.Future[T]) -> None:
        self.waiting -= 1
        if not future.cancelled():
            future.exception()  # an error after the time limit has nobody left to hear it

    def close(self) -> None:
        """Take no more work."""
        self._threads.shutdown(wait=False, cancel_futures=True)
