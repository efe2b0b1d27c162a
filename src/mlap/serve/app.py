"""The server: its addresses, and what each of them does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

import mlap
from mlap.serve import schemas
from mlap.serve.explorer import Explorer
from mlap.serve.gate import Gate
from mlap.serve.guard import App, Guard
from mlap.serve.limits import CHARACTERS
from mlap.serve.problems import Problem
from mlap.serve.tables import PAGE, Tables

STATIC = Path(__file__).parent / "static"
TABLES = "/api/tables"

DESCRIPTION = """Predictions of a trained model, and what they are made of.

Every answer is JSON. A request that cannot be answered gets a `message` in words and, where it is about one, the
`field`. A busy server answers 503 and says in `Retry-After` after how many seconds to try again."""

#: what any request may be told
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": schemas.Refusal, "description": "The request is not JSON"},
    403: {"model": schemas.Refusal, "description": "A page of another site asks"},
    404: {"model": schemas.Refusal, "description": "There is no such thing"},
    405: {"model": schemas.Refusal, "description": "Another method is expected"},
    408: {"model": schemas.Refusal, "description": "The request did not come"},
    409: {"model": schemas.Refusal, "description": "This model, or the server in its state, cannot do it"},
    413: {"model": schemas.Refusal, "description": "The request is too long"},
    415: {"model": schemas.Refusal, "description": "The file is of another kind than those that are read"},
    421: {"model": schemas.Refusal, "description": "The server is not called by that name"},
    422: {"model": schemas.Refusal, "description": "The request is not understood"},
    503: {"model": schemas.Refusal, "description": "The server is busy; try again after `Retry-After` seconds"},
}

Number = Annotated[int, Query(ge=0, le=1_000_000)]


def create_app(explorer: Explorer, hosts: list[str], *, page: bool = True, tables: Tables | None = None) -> App:
    """The whole server as an ASGI application.

    Args:
        explorer: what answers.
        hosts: names by which the server may be called.
        page: whether to serve the page, not only the API.
        tables: where uploaded tables go; closed when the server ends.
    """
    gate = Gate(explorer.limits)
    tables = Tables(explorer) if tables is None else tables

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if explorer.reference is not None:
            explorer.reference.start()
        yield
        if explorer.reference is not None:
            explorer.reference.stop()
        gate.close()
        tables.close()

    app = FastAPI(
        title="mlap",
        version=mlap.__version__,
        description=DESCRIPTION,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
    )
    app.include_router(_questions(explorer, gate))
    app.include_router(_tables(tables, gate))
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_failure)
    if page:
        app.mount("/static", StaticFiles(directory=STATIC), name="static")

        @app.get("/", include_in_schema=False)
        async def index() -> FileResponse:
            return FileResponse(STATIC / "index.html")

    return Guard(app, hosts, explorer.limits, TABLES)


def _questions(explorer: Explorer, gate: Gate) -> APIRouter:
    router = APIRouter(prefix="/api", responses=REFUSALS)

    @router.get("/model", summary="The model, the data set beside it, and the limits")
    async def model() -> schemas.About:
        return explorer.about()

    @router.post("/predict", summary="Predict graphs, with the training set beside them")
    async def predict(question: schemas.Question) -> schemas.Answers:
        return schemas.Answers(answers=await gate.run(explorer.predict, question.inputs, question.nearest))

    @router.post("/explain", summary="What predictions are made of: the share of every node at every level")
    async def explain(look: schemas.Look) -> schemas.Insides:
        return schemas.Insides(explanations=await gate.run(explorer.explain, look.inputs, look.outputs))

    @router.get(
        "/picture",
        summary="A graph, drawn",
        response_class=Response,
        responses={200: {"content": {"image/svg+xml": {"schema": {"type": "string"}}}}},
    )
    async def picture(input: Annotated[str, Query(max_length=CHARACTERS, description=schemas.INPUT)]) -> Response:
        return Response(await gate.run(explorer.picture, input), media_type="image/svg+xml")

    @router.get("/map", summary="The data set in the plane")
    async def map(
        method: Annotated[Literal["pca", "tsne"], Query(description="t-SNE is computed on request")] = "pca",
        level: Annotated[int, Query(ge=0, le=10_000, description="whose representations; 0 for all levels")] = 0,
        output: Annotated[int, Query(ge=0, le=1_000_000, description="whose predictions and labels")] = 0,
    ) -> schemas.Map:
        return await gate.run(explorer.map, method, level, output)

    return router


def _tables(tables: Tables, gate: Gate) -> APIRouter:
    router = APIRouter(prefix=TABLES, responses=REFUSALS)

    @router.post(
        "",
        status_code=202,
        summary="Upload a table of molecules to be predicted row by row",
        openapi_extra={
            "requestBody": {"required": True, "content": {"text/csv": {"schema": {"type": "string"}}}},
        },
    )
    async def upload(
        request: Request,
        name: Annotated[
            str, Query(min_length=5, max_length=200, description="the file's name; its ending says how it is read")
        ],
    ) -> schemas.Table:
        table = tables.new(name)
        try:
            with table.source.open("wb") as file:
                async for part in request.stream():
                    file.write(part)
                    table.lines += part.count(b"\n")
            if not table.source.stat().st_size:
                raise Problem(422, "the file is empty", "body")
            tables.start(table)
        except BaseException:
            tables.discard(table)
            raise
        return table.state()

    @router.get("/{id}", summary="How far a table is")
    async def state(id: str) -> schemas.Table:
        return tables[id].state()

    @router.get("/{id}/rows", summary="Rows of a table, with their predictions")
    async def rows(
        id: str,
        offset: Number = 0,
        limit: Annotated[int, Query(ge=1, le=PAGE)] = 50,
        sort: Annotated[str | None, Query(max_length=200, description="a column, or `smiles`")] = None,
        descending: bool = False,
        contains: Annotated[str, Query(max_length=200, description="only rows with this text")] = "",
        show: Literal["all", "valid", "invalid"] = "all",
    ) -> schemas.Rows:
        return await gate.run(tables[id].page, offset, limit, sort, descending, contains, show)

    @router.get(
        "/{id}/predictions.csv",
        summary="The table with its predictions",
        response_class=Response,
        responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
    )
    async def as_csv(id: str) -> Response:
        return FileResponse(tables.finished(id).result, media_type="text/csv", filename="predictions.csv")

    @router.get("/{id}/predictions.json", summary="All rows of a table, with their predictions")
    async def as_json(id: str) -> schemas.Rows:
        table = tables.finished(id)
        return schemas.Rows(total=len(table.rows), rows=table.rows)

    @router.delete("/{id}", status_code=204, summary="Forget a table and delete its files")
    async def delete(id: str) -> None:
        tables.remove(id)

    return router


# ---- refusals --------------------------------------------------------------------------------------------------------


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return JSONResponse(error.content, error.status, error.headers)


async def _on_invalid(request: Request, error: Exception) -> Response:
    """The first thing that is wrong with a request, in words."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return JSONResponse(Problem(400, "the request is not JSON", "body").content, 400)
    field = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    return JSONResponse(Problem(422, f"{field}: {first['msg']}", field).content, 422)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse(Problem(error.status_code, str(error.detail)).content, error.status_code, error.headers)


async def _on_failure(request: Request, error: Exception) -> Response:
    """An error of our own: its place stands in the server's log, not in the answer."""
    return JSONResponse(Problem(500, "the server failed at this; its log says where").content, 500)
