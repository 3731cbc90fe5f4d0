"""deploy/rpc: what the compose file says fits together. Docker itself is not asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.cli.flags import parse

FOLDER = Path(__file__).parents[1] / "deploy" / "rpc"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    yaml: Any = pytest.importorskip("yaml")
    return dict(yaml.safe_load((FOLDER / "compose.yml").read_text()))


def test_the_server_asks_workers_that_are_there(compose: dict[str, Any]) -> None:
    services = compose["services"]
    command, *words = services["server"]["command"]
    assert command == "serve"
    workers = {}
    for name, service in services.items():
        if name != "server":
            assert service["command"][0] == "worker"
            port = parse(service["command"][1:], "worker").values["worker.port"]
            workers[f"{name}:{port}"] = f":{port:04X} "
            assert workers[f"{name}:{port}"] in service["healthcheck"]["test"][1]
    assert set(parse(words, "serve").values["model.rpc"]) == set(workers)
    assert len(workers) == 2


def test_workers_are_reached_by_the_server_alone(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if name == "server":
            assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        else:
            assert "ports" not in service
            assert [compose["networks"][network] for network in service["networks"]] == [{"internal": True}]


def test_the_image_is_built_from_files_that_are_there() -> None:
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    copied = [
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    ]
    assert copied
    assert [name for name in copied if not (FOLDER.parents[1] / name).exists()] == []
    assert any("-DGGML_RPC=on" in line for line in lines)
