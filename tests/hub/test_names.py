"""Names, and the files they stand for."""

from __future__ import annotations

import pytest

from paceline.errors import HubError
from paceline.hub.names import Address, Repository, all_parts, choose, choose_head, parse, quant_of

FILES = ["README.md", "imatrix-m.gguf", "m-F16.gguf", "m-IQ4_XS.gguf", "m-q8_0.gguf", "mmproj-m-F16.gguf"]
SPLIT = [f"BF16/m-BF16-0000{i}-of-00003.gguf" for i in (1, 2, 3)]


def refusal(files: list[str], name: str, file: str | None = None) -> str:
    wanted = parse(name, file)
    assert isinstance(wanted, Repository)
    with pytest.raises(HubError) as caught:
        choose(files, wanted)
    return str(caught.value)


def chosen(files: list[str], name: str, file: str | None = None) -> list[str]:
    wanted = parse(name, file)
    assert isinstance(wanted, Repository)
    return choose(files, wanted)


def test_ways_to_write_a_name() -> None:
    assert parse("user/m") == parse("user/m/") == Repository("user/m")
    assert parse("user/m:Q8_0") == Repository("user/m", "Q8_0")
    assert parse("user/m:Q8_0", "a/b.gguf") == Repository("user/m", "", "a/b.gguf")
    assert parse("user/m/a/b.gguf") == Repository("user/m", "", "a/b.gguf")
    assert parse("https://host/a%20b.gguf?x=1") == Address("https://host/a%20b.gguf?x=1")
    assert Address("https://host/a%20b.gguf?x=1").file == "a b.gguf"


@pytest.mark.parametrize("name", ["m", "", "/m", "user/", "user/m/notes.txt", "../..", "a b/c"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(HubError, match="is not USER/MODEL"):
        parse(name)


@pytest.mark.parametrize(
    "url", ["ftp://host/m.gguf", "https:///m.gguf", "https://host/", "https://host/a/..", "file:///m.gguf"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(HubError, match="is not the address of a file"):
        parse(url)


def test_without_a_quant_the_usual_ones_come_first() -> None:
    assert chosen(FILES, "user/m") == ["m-q8_0.gguf"]
    assert chosen([*FILES, "m-Q4_K_M.gguf"], "user/m") == ["m-Q4_K_M.gguf"]
    assert chosen(["mmproj-a.gguf", "b.gguf", "c.gguf"], "user/m") == ["b.gguf"]


def test_quants_are_found_in_any_case_and_whole() -> None:
    assert chosen(FILES, "user/m:Q8_0") == ["m-q8_0.gguf"]
    assert chosen(FILES, "user/m:f16") == ["m-F16.gguf"]
    assert chosen([*FILES, *SPLIT], "user/m:bf16") == SPLIT
    assert "it has F16, IQ4_XS, Q8_0, as in user/m:F16" in refusal(FILES, "user/m:Q4_XS")


def test_files_are_taken_at_their_word() -> None:
    assert chosen(FILES, "user/m:F16", "m-IQ4_XS.gguf") == ["m-IQ4_XS.gguf"]
    assert chosen(SPLIT, "user/m", SPLIT[0]) == SPLIT
    assert refusal(FILES, "user/m", "n.gguf").startswith("user/m has no file n.gguf; it has imatrix-m.gguf, m-F16.gguf")
    assert "is not complete there" in refusal(SPLIT[:2], "user/m")


def test_a_repository_without_models_says_so() -> None:
    assert "has no GGUF model; look for" in refusal(["README.md", "model.safetensors"], "user/m")
    assert "has no GGUF model, only mmproj-m.gguf; look for" in refusal(["mmproj-m.gguf"], "user/m")


def test_parts_of_a_split_model() -> None:
    assert all_parts("m-00002-of-00003.gguf") == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert all_parts("m-2-of-3.gguf") == ["m-2-of-3.gguf"]
    urls = Address("https://h/m-00001-of-00002.gguf?sig=1").parts
    assert [part.url for part in urls] == [f"https://h/m-0000{i}-of-00002.gguf?sig=1" for i in (1, 2)]


@pytest.mark.parametrize(
    ("file", "quant"),
    [("m-Q4_K_M.gguf", "Q4_K_M"), ("a.b-q8_0.gguf", "Q8_0"), ("m.F16.gguf", "F16"), (SPLIT[0], "BF16"), ("m.gguf", "")],
)
def test_quants_of_names(file: str, quant: str) -> None:
    assert quant_of(file) == quant


def test_heads_stand_beside_their_models() -> None:
    files = ["m-Q8_0.gguf", "mtp-m-Q4_0.gguf", "mtp-m-Q8_0.gguf", "eagle3-m-F16.gguf", "a/m-Q8_0.gguf", "b/mtp-x.gguf"]
    assert choose_head(files, ("mtp", "eagle3"), "m-Q8_0.gguf") == ["mtp-m-Q8_0.gguf"], "the nearest quant"
    assert choose_head(files, ("mtp",), "m-Q8_0.gguf", "Q4_0") == ["mtp-m-Q4_0.gguf"], "the one asked for"
    assert choose_head(files, ("eagle3",), "a/m-Q8_0.gguf") == ["eagle3-m-F16.gguf"], "also above"
    assert choose_head(files, ("dflash",), "m-Q8_0.gguf") == []
    assert choose_head(["b/mtp-x.gguf"], ("mtp",), "m-Q8_0.gguf") == [], "not in other folders"
    assert chosen(["mtp-m.gguf", "X-MTP-Q8_0.gguf"], "user/m") == ["X-MTP-Q8_0.gguf"], "has heads, and is a model"
