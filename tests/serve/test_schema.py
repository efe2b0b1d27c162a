"""What the API says of itself is true: requests made up from its description, valid and invalid ones."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from serving import Served

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

PATHS = [
    ("GET", "/api/model"),
    ("POST", "/api/predict"),
    ("POST", "/api/explain"),
    ("GET", "/api/picture"),
    ("GET", "/api/map"),
    ("POST", "/api/tables"),
    ("GET", "/api/tables/{id}"),
    ("GET", "/api/tables/{id}/rows"),
    ("GET", "/api/tables/{id}/predictions.csv"),
    ("GET", "/api/tables/{id}/predictions.json"),
    ("DELETE", "/api/tables/{id}"),
]


#: what could be asked wrongly: any text may be a table's id
NEGATIVE = [
    (method, path) for method, path in PATHS if path != "/api/model" and not path.endswith(("{id}", "csv", "json"))
]
CASES = [(*each, "positive") for each in PATHS] + [(*each, "negative") for each in NEGATIVE]


def test_all_addresses_are_tried(served: Served) -> None:
    paths = served.client.get("/api/openapi.json").json()["paths"]
    assert {(method.upper(), path) for path, methods in paths.items() for method in methods} == set(PATHS)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path", "mode"), CASES)
def test_answers_are_as_described(served: Served, method: str, path: str, mode: str) -> None:
    schema = schemathesis.openapi.from_dict(served.client.get("/api/openapi.json").json())
    operation = schema[path][method]
    checks = [
        schemathesis.checks.not_a_server_error,
        schemathesis.checks.status_code_conformance,
        schemathesis.checks.content_type_conformance,
        schemathesis.checks.response_schema_conformance,
    ]
    limits = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

    @limits
    @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    def conforms(case: object) -> None:
        response = case.call(base_url=served.address)  # type: ignore[attr-defined]
        if response.status_code != 503:  # busy is described, and no failure
            case.validate_response(response, checks=checks)  # type: ignore[attr-defined]

    conforms()
    assert httpx.get(f"{served.address}/api/model").status_code == 200  # and the server still stands
