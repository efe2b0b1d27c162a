"""How the library tells of its progress: by calling back. It draws nothing itself."""

from __future__ import annotations

from collections.abc import Callable

#: called with what is being done, how much of it is done, and how much there is in all (`None` where that is unknown)
Progress = Callable[[str, int, int | None], None]
