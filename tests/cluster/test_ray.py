"""Two engines on Ray Serve behind one port, and `kill -9` on the way: `benchmarks.replicas`, in short."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.bodies import kinds
from benchmarks.kills import N_CTX, references, tiny_model
from benchmarks.replicas import FLAGS, N_SLOTS, REPLICA, Blow, crowd, replicas, whole_again
from benchmarks.server import Server, serving
from paceline.cluster import replicas as opening
from paceline.errors import ConfigError

DEPLOY = Path(__file__).parents[2] / "deploy"
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'paceline[ray]'")


@contextmanager
def started(model: str) -> Iterator[Server]:
    """Ray gives itself half a minute to start, and there is no way to give it more."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(replicas(model))
        except ConfigError as error:
            if "timed out during startup" in str(error):
                pytest.skip("the machine is too busy for Ray to start, twice")
            raise
        yield server


@needs_ray
@pytest.mark.model
def test_a_killed_replica_is_not_missed_and_is_replaced(tmp_path: Path) -> None:
    model = tiny_model(str(tmp_path))
    with serving(model, N_SLOTS, N_SLOTS * N_CTX, FLAGS) as one:
        cases = references(one, kinds()[::3])
    with started(model) as server:
        tally = crowd(server, cases, 60, 8, [Blow(20, REPLICA)], seed=2)
        assert (tally.lost, tally.changed, tally.broken, tally.n_reconnects) == ({}, [], [], 0)
        assert tally.n_kills == 1
        assert whole_again(server)
        found = server.get("/health")
        assert found["restarts"] >= 1
        assert {slot["replica"] for slot in server.get("/slots")} == {0, 1}
        assert server.alive
    assert not server.process.returncode


@needs_ray
@pytest.mark.filterwarnings("ignore")  # Ray's own, when it is imported
def test_the_kubernetes_manifest_is_what_ray_serve_reads(target: str) -> None:
    import yaml
    from ray.serve.schema import ServeDeploySchema

    from paceline.cli.deployment import application

    service, front, port = yaml.safe_load_all((DEPLOY / "rayservice.yaml").read_text())
    [wanted] = ServeDeploySchema(**yaml.safe_load(service["spec"]["serveConfigV2"])).applications
    assert wanted.import_path == f"{application.__module__}:{application.__name__}"
    flags = wanted.args["serve"]
    [pod] = front["spec"]["template"]["spec"]["containers"]
    assert flags in pod["args"][0] and f"--ray-app {wanted.name}" in pod["args"][0]
    assert f"--replicas {wanted.args['replicas']}" in pod["args"][0]
    assert service["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["replicas"] == int(wanted.args["replicas"])
    assert port["spec"]["selector"] == front["spec"]["selector"]["matchLabels"]
    [engine] = [application({**wanted.args, "serve": flags.replace("/models/model.gguf", target)})]
    assert engine._bound_deployment.num_replicas == int(wanted.args["replicas"])


def test_without_ray_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'paceline\[ray\]'"):
        opening.check_ray()
