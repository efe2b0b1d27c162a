"""What the server accepts, said up front: on the page, in the API's description and in every refusal."""

from __future__ import annotations

from dataclasses import dataclass

#: graphs of one question; longer lists are for tables
INPUTS = 1000
#: graphs that are explained and drawn in one answer
EXPLAINED = 8
#: outputs whose shares are sent in one answer
OUTPUTS = 8
#: characters of a SMILES
CHARACTERS = 2000
#: atoms of a molecule that is asked about
ATOMS = 500
#: points of the map, and graphs that answers are compared with; larger sets are thinned at random
POINTS = 50_000
#: graphs of a t-SNE map, which takes time that grows faster than their number
TSNE_POINTS = 2000


@dataclass(frozen=True)
class Limits:
    """The limits of a server.

    Args:
        body: bytes of a question.
        upload: bytes of an uploaded table.
        rows: rows of an uploaded table.
        tables: uploaded tables that are kept; a new one takes the place of the oldest.
        connections: requests at once, waiting ones included.
        waiting: questions to the model at once, waiting ones included.
        seconds: the time of one request.
    """

    body: int = 4_000_000
    upload: int = 64_000_000
    rows: int = 100_000
    tables: int = 8
    connections: int = 256
    waiting: int = 64
    seconds: float = 30.0
