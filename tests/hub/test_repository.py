"""Repositories of a real server on loopback, in the cache that huggingface_hub shares."""

from __future__ import annotations

import logging
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import constants, hf_hub_download, scan_cache_dir

from paceline.errors import HubError
from paceline.hub.cached import cached_models
from paceline.hub.names import Repository
from paceline.hub.repository import Hub, fetch_head, fetch_model, is_digest
from tests.hub.conftest import REPO, Shown
from tests.hub.server import HubServer

HALF = 200_000
NOWHERE = "http://127.0.0.1:1"


def refusal(hub: Hub, wanted: Repository) -> str:
    with pytest.raises(HubError) as caught:
        fetch_model(hub, wanted, Shown())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def incomplete(hub: Hub) -> list[Path]:
    return list(hub.folder.rglob("*.incomplete"))


def test_the_first_run_fetches_the_second_has_it(server: HubServer, hub: Hub, shown: Shown, target: str) -> None:
    path = fetch_model(hub, Repository(REPO, "q8_0"), shown)
    model = Path(target).read_bytes()
    assert Path(path).read_bytes() == model
    assert Path(path).name == "tiny-Q8_0.gguf"
    assert [(name, size) for name, size, _ in shown.files] == [("tiny-Q8_0.gguf", len(model))]
    assert shown.files[0][2][0] == 0
    assert shown.files[0][2][-1] == len(model)
    assert server.sent() == [len(model)]
    server.forget()
    assert fetch_model(hub, Repository(REPO, "q8_0"), shown) == path
    assert server.sent() == []
    assert len(shown.files) == 1
    assert incomplete(hub) == []


def test_the_cache_is_that_of_huggingface_hub(server: HubServer, hub: Hub, shown: Shown) -> None:
    """Both ways: it finds what we have fetched, we find what it has."""
    ours = fetch_model(hub, Repository(REPO), shown)
    assert hf_hub_download(REPO, "tiny-Q4_K_M.gguf", cache_dir=hub.folder, local_files_only=True) == ours
    assert scan_cache_dir(hub.folder).warnings == []
    theirs = hf_hub_download(REPO, "tiny-Q8_0.gguf", cache_dir=hub.folder, endpoint=server.url)
    n_requests = len(server.sent())
    assert fetch_model(hub, Repository(REPO, "Q8_0"), shown) == theirs
    assert len(server.sent()) == n_requests
    assert cached_models(hub.folder) == [f"{REPO}:Q4_K_M", f"{REPO}:Q8_0"]


def test_the_second_run_needs_no_hub(
    server: HubServer, hub: Hub, shown: Shown, caplog: pytest.LogCaptureFixture
) -> None:
    path = fetch_model(hub, Repository(REPO), shown)
    server.forget()
    assert fetch_model(replace(hub, offline=True), Repository(REPO), shown) == path
    assert server.seen == []
    assert caplog.records == []
    assert fetch_model(replace(hub, endpoint=NOWHERE), Repository(REPO), shown) == path
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cannot be reached" in caplog.text
    assert "using what the cache has" in caplog.text


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_hub_in_trouble_is_no_reason_not_to_start(
    server: HubServer, hub: Hub, shown: Shown, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = fetch_model(hub, Repository(REPO), shown)
    server.trouble.status = status
    assert fetch_model(hub, Repository(REPO), shown) == path
    assert str(status) in caplog.text
    shutil.rmtree(hub.folder)
    assert str(status) in refusal(hub, Repository(REPO))


def test_a_hub_that_does_not_answer(
    server: HubServer, hub: Hub, shown: Shown, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = fetch_model(hub, Repository(REPO), shown)
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.3)
    server.trouble.delay = 5.0
    assert fetch_model(hub, Repository(REPO), shown) == path
    assert "no answer in time" in caplog.text


def test_offline_knows_what_is_there_and_nothing_else(server: HubServer, hub: Hub, shown: Shown) -> None:
    path = fetch_model(hub, Repository(REPO, "Q8_0"), shown)
    offline = replace(hub, offline=True)
    assert fetch_model(offline, Repository(REPO), shown) == path, "the only one there is"
    assert refusal(offline, Repository(REPO, "Q4_K_M")).startswith(f"{REPO}:Q4_K_M is not in the cache {hub.folder}")
    assert "--offline forbids to fetch it" in refusal(offline, Repository("user/other"))


def test_a_split_model_comes_whole(server: HubServer, hub: Hub, shown: Shown) -> None:
    names = [f"Q6_K/big-Q6_K-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    server.add("user/big", {name: b"GGUF" + name.encode() for name in names})
    first = fetch_model(hub, Repository("user/big", "q6_k"), shown)
    assert shown.names == names
    assert first.endswith("Q6_K/big-Q6_K-00001-of-00003.gguf")
    assert sorted(path.name for path in Path(first).parent.iterdir()) == [Path(name).name for name in names]
    Path(first).parent.joinpath("big-Q6_K-00003-of-00003.gguf").unlink()
    assert "is not in the cache" in refusal(replace(hub, offline=True), Repository("user/big")), "a part is missing"
    assert cached_models(hub.folder) == ["user/big:Q6_K"]


def test_a_new_version_of_a_file_is_fetched(server: HubServer, hub: Hub, shown: Shown, target: str) -> None:
    before = fetch_model(hub, Repository(REPO, "Q8_0"), shown)
    server.add(REPO, {"tiny-Q8_0.gguf": Path(target).read_bytes() + b"\0"})
    after = fetch_model(hub, Repository(REPO, "Q8_0"), shown)
    assert Path(after).stat().st_size == Path(before).stat().st_size + 1
    assert fetch_model(replace(hub, offline=True), Repository(REPO, "Q8_0"), shown) == after


def test_heads_go_before_models_where_they_are_wanted(server: HubServer, hub: Hub, shown: Shown) -> None:
    files = {"m-Q8_0.gguf": b"GGUF1", "eagle3-m-Q8_0.gguf": b"GGUF2", "m-Q4_K_M.gguf": b"GGUF3"}
    server.add("user/heads", files)
    wanted = Repository("user/heads", "Q8_0")
    assert Path(fetch_model(hub, wanted, shown)).name == "m-Q8_0.gguf"
    assert Path(fetch_model(hub, wanted, shown, ("mtp", "eagle3"))).name == "eagle3-m-Q8_0.gguf"
    assert Path(fetch_head(hub, wanted, shown, ("eagle3",)) or "").name == "eagle3-m-Q8_0.gguf"
    assert fetch_head(hub, wanted, shown, ("mtp",)) is None


# -- interruptions


def test_a_lost_connection_goes_on(
    server: HubServer, hub: Hub, shown: Shown, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.trouble.cut_after, server.trouble.n_cuts = HALF, 2
    path = fetch_model(hub, Repository(REPO, "Q8_0"), shown)
    size = Path(target).stat().st_size
    assert Path(path).read_bytes() == Path(target).read_bytes()
    assert server.sent() == [HALF, HALF, size - 2 * HALF], "only what was missing"
    assert caplog.text.count("connection lost after") == 2
    assert len(shown.files) == 1, "one bar for it all"


def test_the_next_run_goes_on_where_the_last_one_ended(server: HubServer, hub: Hub, shown: Shown, target: str) -> None:
    server.trouble.cut_after, server.trouble.gone = HALF, True
    assert "what came stays: start again to go on" in refusal(hub, Repository(REPO, "Q8_0"))
    assert [path.stat().st_size for path in incomplete(hub)] == [HALF]
    server.forget()
    fetch_model(hub, Repository(REPO, "Q8_0"), shown)
    size = Path(target).stat().st_size
    assert server.sent() == [size - HALF]
    assert [seen.range for seen in server.seen if seen.n_sent] == [f"bytes={HALF}-"]
    assert shown.files[0][2][0] == HALF, "the bar begins there"
    assert incomplete(hub) == []


def test_a_server_without_ranges_sends_all_again(server: HubServer, hub: Hub, shown: Shown, target: str) -> None:
    server.trouble.cut_after, server.trouble.no_ranges = HALF, True
    path = fetch_model(hub, Repository(REPO, "Q8_0"), shown)
    assert Path(path).read_bytes() == Path(target).read_bytes()
    assert server.sent() == [HALF, Path(target).stat().st_size]


def test_two_at_once_fetch_once(
    server: HubServer, hub: Hub, shown: Shown, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.trouble.pause = 2.0
    paths: list[str] = []
    wanted = Repository(REPO, "Q8_0")
    threads = [threading.Thread(target=lambda: paths.append(fetch_model(hub, wanted, shown))) for _ in range(2)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 60
    while "another process fetches" not in caplog.text and time.monotonic() < until:
        time.sleep(0.01)
    server.trouble.pause = 0.0  # both are at it: no need to dawdle any more
    for thread in threads:
        thread.join()
    assert len(paths) == 2
    assert paths[0] == paths[1]
    assert server.sent() == [Path(target).stat().st_size]
    assert "another process fetches" in caplog.text


# -- what came is checked


def test_damaged_bytes_are_not_believed(server: HubServer, hub: Hub, shown: Shown) -> None:
    server.trouble.spoil = True
    assert "came damaged: its SHA-256" in refusal(hub, Repository(REPO, "Q8_0"))
    assert incomplete(hub) == []
    server.forget()
    assert fetch_model(hub, Repository(REPO, "Q8_0"), shown)


def test_a_wrong_size_is_noticed(server: HubServer, hub: Hub, shown: Shown, target: str) -> None:
    size = Path(target).stat().st_size
    server.trouble.shorter_by = 100
    assert f"came with {size - 100} bytes instead of {size}" in refusal(hub, Repository(REPO, "Q8_0"))
    server.forget()
    path = Path(fetch_model(hub, Repository(REPO, "Q8_0"), shown))
    path.resolve().write_bytes(b"GGUF, cut by somebody")
    assert Path(fetch_model(hub, Repository(REPO, "Q8_0"), shown)).stat().st_size == size, "fetched again"


def test_a_page_is_no_model(server: HubServer, hub: Hub) -> None:
    server.add("user/page", {"m.gguf": b"<html>please log in</html>"})
    assert "is not a GGUF file; it begins with b'<html>please log" in refusal(hub, Repository("user/page"))
    assert incomplete(hub) == []


# -- refusals


def test_refusals_say_what_to_change(server: HubServer, hub: Hub) -> None:
    server.tokens.update(good=True, stranger=False)
    server.add("user/gated", {"m.gguf": b"GGUF"}, gated=True)
    server.add("user/private", {"m.gguf": b"GGUF"}, private=True)
    server.add("user/plain", {"model.safetensors": b"x"})
    stranger, wrong = replace(hub, token="stranger"), replace(hub, token="wrong")
    for asker, wanted, words in (
        (hub, Repository("user/none"), f"there is no repository user/none at {server.url}, or it is private and needs"),
        (stranger, Repository("user/none"), "or this token may not see it"),
        (hub, Repository("user/private"), "or it is private and needs a token with -hft or HF_TOKEN; check the name"),
        (hub, Repository("user/gated"), f"user/gated is gated: ask for access at {server.url}/user/gated, then give"),
        (stranger, Repository("user/gated"), "the account of this token has no access yet"),
        (wrong, Repository(REPO), f"{REPO}: the hub does not accept the token; check -hft and HF_TOKEN"),
        (hub, Repository(REPO, "Q2_K"), f"{REPO} has no Q2_K; it has Q4_K_M, Q8_0, as in {REPO}:Q4_K_M"),
        (hub, Repository(REPO, "", "none.gguf"), f"{REPO} has no file none.gguf; it has "),
        (hub, Repository("user/plain"), "user/plain has no GGUF model; look for"),
        (replace(hub, endpoint=NOWHERE), Repository(REPO), "cannot be reached ([Errno 111] Connection refused), and"),
    ):
        assert words in refusal(asker, wanted), words


def test_a_token_opens_what_is_private_and_stays_at_the_hub(server: HubServer, hub: Hub, shown: Shown) -> None:
    server.tokens.update(good=True)
    server.add("user/gated", {"m.gguf": b"GGUF"}, gated=True, private=True)
    assert fetch_model(replace(hub, token="good"), Repository("user/gated"), shown)
    tokens = {seen.path.split("/")[1]: seen.token for seen in server.seen}
    assert tokens["api"] == tokens["user"] == "good"
    assert tokens["blobs"] is None, "the CDN is somebody else"


# -- disks


def test_a_file_that_cannot_fit_is_not_begun(server: HubServer, hub: Hub) -> None:
    server.trouble.listed_size = 10**18
    said = refusal(hub, Repository(REPO))
    assert said.startswith(f"{REPO} needs 1e+06 TB more, and {hub.folder} has ")
    assert "HF_HOME" in said
    assert server.sent() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Room for half a tiny model, where the system lets us have such a disk."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mount.returncode:
        pytest.skip("may not mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_without_room_is_noticed_before(server: HubServer, hub: Hub, small_disk: Path) -> None:
    said = refusal(replace(hub, folder=small_disk), Repository(REPO))
    assert "needs 475 kB more, and" in said
    assert "make room, or name a folder on another disk with HF_HOME" in said
    assert server.sent() == []


def test_a_disk_that_fills_up_meanwhile(
    server: HubServer, hub: Hub, shown: Shown, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.hub.repository.check_room", lambda *_: None)
    monkeypatch.setattr("paceline.hub.transfer.check_room", lambda *_: None)
    small = replace(hub, folder=small_disk)
    said = refusal(small, Repository(REPO))
    assert "is full, tiny-Q4_K_M.gguf does not fit; make room" in said
    assert [path.stat().st_size > 100_000 for path in incomplete(small)] == [True], "what came stays"


def test_a_folder_that_cannot_be_written(server: HubServer, hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert "cannot write" in refusal(replace(hub, folder=tmp_path / "file" / "hub"), Repository(REPO))


def test_a_hub_names_no_file_outside_its_folder(server: HubServer, hub: Hub, tmp_path: Path) -> None:
    server.add("user/bad", {"../../../../outside-Q8_0.gguf": b"GGUF"})
    assert refusal(hub, Repository("user/bad"))
    assert not list(tmp_path.parent.rglob("outside*"))
    assert is_digest("ab" * 20)
    assert not is_digest("../" * 20)
