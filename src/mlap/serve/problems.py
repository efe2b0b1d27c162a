"""What a refused request is told."""

from __future__ import annotations


class Problem(Exception):
    """A request that is not answered.

    Args:
        status: of the HTTP answer.
        message: what was got, what was expected, what to do.
        field: the field of the question that it is about.
        retry_after: seconds after which to try again.
    """

    def __init__(self, status: int, message: str, field: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field
        self.retry_after = retry_after

    @property
    def content(self) -> dict[str, str | None]:
        """The body of the answer."""
        return {"message": self.message, "field": self.field}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


def busy(why: str) -> Problem:
    """The refusal of a server that has enough to do."""
    return Problem(503, f"the server is busy: {why}; try again in a moment", retry_after=2)
