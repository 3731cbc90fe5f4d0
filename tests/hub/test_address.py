"""Files by their address."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paceline.errors import HubError
from paceline.hub.address import fetch_address
from paceline.hub.names import Address
from paceline.hub.repository import Hub
from tests.hub.conftest import REPO, Shown
from tests.hub.server import HubServer

HALF = 200_000


@pytest.fixture
def address(server: HubServer) -> Address:
    return Address(f"{server.state.cdn}/files/{REPO}/tiny-Q8_0.gguf")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "addresses"


def refusal(hub: Hub, address: Address, folder: Path) -> str:
    with pytest.raises(HubError) as caught:
        fetch_address(hub, address, folder, Shown())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def n_gets(server: HubServer) -> int:
    return sum(seen.method == "GET" and seen.path.startswith("/files/") for seen in server.seen)


def test_an_address_is_fetched_once(
    server: HubServer, hub: Hub, address: Address, folder: Path, shown: Shown, target: str
) -> None:
    path = Path(fetch_address(hub, address, folder, shown))
    assert path.read_bytes() == Path(target).read_bytes()
    assert path.name == "tiny-Q8_0.gguf"
    assert path.parent.parent == folder
    assert shown.files[0][1] == len(path.read_bytes())
    assert Path(fetch_address(hub, address, folder, shown)) == path
    assert n_gets(server) == 1
    assert not list(folder.rglob("*.incomplete"))


def test_what_changed_is_fetched_again(
    server: HubServer, hub: Hub, address: Address, folder: Path, shown: Shown, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(fetch_address(hub, address, folder, shown))
    server.add(REPO, {"tiny-Q8_0.gguf": b"GGUF, another"})
    fetch_address(hub, address, folder, shown)
    assert path.read_bytes() == b"GGUF, another"
    server.add(REPO, {"tiny-Q8_0.gguf": b"no model at all"})
    assert "is not a GGUF file" in refusal(hub, address, folder)
    assert path.read_bytes() == b"GGUF, another", "the old one stays until the new one is there"


def test_without_the_server_the_file_does(
    server: HubServer, hub: Hub, address: Address, folder: Path, shown: Shown, caplog: pytest.LogCaptureFixture
) -> None:
    path = fetch_address(hub, address, folder, shown)
    server.forget()
    assert fetch_address(replace(hub, offline=True), address, folder, shown) == path
    assert server.seen == []
    server.trouble.status = 503
    assert fetch_address(hub, address, folder, shown) == path
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "the server is in trouble (HTTP 503)" in caplog.text


def test_an_interrupted_one_goes_on(
    server: HubServer, hub: Hub, address: Address, folder: Path, shown: Shown, target: str
) -> None:
    server.trouble.cut_after, server.trouble.gone = HALF, True
    assert "what came stays: start again to go on" in refusal(hub, address, folder)
    server.forget()
    path = fetch_address(hub, address, folder, shown)
    assert Path(path).read_bytes() == Path(target).read_bytes()
    assert [seen.range for seen in server.seen if seen.n_sent] == [f"bytes={HALF}-"]


def test_an_interrupted_one_that_changed_begins_anew(
    server: HubServer, hub: Hub, address: Address, folder: Path, shown: Shown, target: str
) -> None:
    server.trouble.cut_after, server.trouble.gone = HALF, True
    refusal(hub, address, folder)
    server.forget()
    other = Path(target).read_bytes() + b"\1"
    server.add(REPO, {"tiny-Q8_0.gguf": other})
    assert Path(fetch_address(hub, address, folder, shown)).read_bytes() == other
    assert [seen.range for seen in server.seen if seen.n_sent] == [None]


def test_servers_that_know_no_head(
    server: HubServer, hub: Hub, address: Address, folder: Path, shown: Shown, target: str
) -> None:
    server.trouble.no_head = True
    assert Path(fetch_address(hub, address, folder, shown)).read_bytes() == Path(target).read_bytes()
    assert shown.files[0][1] is None


def test_a_split_model_comes_whole(server: HubServer, hub: Hub, folder: Path, shown: Shown) -> None:
    names = [f"m-0000{i}-of-00002.gguf" for i in (1, 2)]
    server.add("user/split", {name: b"GGUF" + name.encode() for name in names})
    path = fetch_address(hub, Address(f"{server.state.cdn}/files/user/split/{names[0]}"), folder, shown)
    assert shown.names == names
    assert [Path(path).parent.joinpath(name).read_bytes() for name in names] == [b"GGUF" + n.encode() for n in names]


def test_a_file_of_the_users_choice(
    server: HubServer, hub: Hub, address: Address, folder: Path, shown: Shown, tmp_path: Path
) -> None:
    wanted = tmp_path / "mine" / "m.gguf"
    assert fetch_address(hub, address, folder, shown, wanted) == str(wanted)
    assert wanted.exists()
    assert not folder.exists()


def test_the_hubs_token_is_for_the_hub_alone(
    server: HubServer, hub: Hub, address: Address, folder: Path, shown: Shown
) -> None:
    server.tokens["good"] = True
    holder = replace(hub, token="good")
    fetch_address(holder, address, folder, shown)
    fetch_address(holder, Address(f"{server.url}/{REPO}/resolve/main/tiny-Q8_0.gguf"), folder, shown)
    assert {seen.token for seen in server.seen if seen.path.startswith("/files/")} == {None}
    assert {seen.token for seen in server.seen if "/resolve/" in seen.path} == {"good"}


@pytest.mark.parametrize(
    ("status", "words"),
    [(404, "has no such file (404)"), (401, "wants a token"), (500, "is in trouble (HTTP 500)")],
)
def test_refusals(server: HubServer, hub: Hub, address: Address, folder: Path, status: int, words: str) -> None:
    server.trouble.status = status
    assert refusal(hub, address, folder).startswith(f"{address.url}: the server {words}")


def test_nobody_there(hub: Hub, folder: Path) -> None:
    assert "the server cannot be reached (" in refusal(hub, Address("http://127.0.0.1:1/m.gguf"), folder)
    offline = replace(hub, offline=True)
    assert "--offline forbids to fetch it" in refusal(offline, Address("http://127.0.0.1:1/m.gguf"), folder)
