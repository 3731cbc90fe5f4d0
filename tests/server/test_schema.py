"""schemathesis makes requests up from our own OpenAPI schema, right and wrong ones: none may end in a 500."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as effort
from schemathesis import GenerationMode

from paceline.config import ModelParams, Settings
from paceline.server.app import create_app
from paceline.server.params import ServerParams
from paceline.server.service import Service
from tests.server.live import Live, live, settings

pytestmark = pytest.mark.model

OPENAPI = create_app(Service(Settings(model=ModelParams(path="-")), ServerParams(webui=False))).openapi()
FOUND: list[Any] = list(schemathesis.openapi.from_dict(OPENAPI).get_all_operations())
OPERATIONS = [found.ok() for found in FOUND]
EFFORT = effort(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def small(target: str) -> Iterator[Live]:
    """A context that even an answer without a limit fills soon."""
    with live(settings(target, n_ctx=256, n_slots=2)) as server:
        yield server


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=[operation.label for operation in OPERATIONS])
def test_no_request_ends_in_a_500(small: Live, operation: Any, mode: GenerationMode) -> None:
    if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
        pytest.skip("nothing to get wrong")

    @EFFORT
    @given(case=operation.as_strategy(generation_mode=mode))
    def attempt(case: Any) -> None:
        response = case.call(base_url=small.url, timeout=60)
        assert response.status_code < 500 or response.status_code == 501, response.text

    attempt()
    assert small.idle()


def test_every_slot_is_free_afterwards(small: Live) -> None:
    assert not small.service.running
    assert small.post("/completion", prompt="Hi", n_predict=1).status_code == 200
