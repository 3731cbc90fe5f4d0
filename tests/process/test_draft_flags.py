"""The draft's flags for devices, memory and threads, under all their names: each is read back from libllama, or its
effect is seen. The last test asks whether a flag of the users' own command lines is missing here."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paceline.cli.flags import flags_of, parse, split
from paceline.config import Settings
from paceline.llama.context import Context
from paceline.llama.devices import can_offload
from paceline.llama.lib import c
from paceline.llama.loading import ModelStruct
from tests.placing import locked, mapped, moved, opened, settings_of
from tests.tiny import write_model

pytestmark = pytest.mark.model
linux = pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
no_gpu = pytest.mark.skipif(can_offload(), reason="there is a GPU")
SEEDS = Path(__file__).parent.parent / "cli" / "seed_commands.txt"
EXPERTS = {f"blk.{i}.ffn_{part}_exps.weight" for i in range(3) for part in ("gate", "up", "down")}


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> str:
    """With experts, and rows that a quantised cache can hold."""
    path = tmp_path_factory.mktemp("draft") / "draft.gguf"
    return write_model(path, seed=2, n_layer=3, n_embd=64, n_ctx=2048, n_expert=4)


@contextmanager
def drafting(line: str, target: str, draft: str) -> Iterator[Context]:
    """The draft model's context."""
    with opened(line, target, draft) as parts:
        yield parts.computing["draft-simple"].main


LAYERS = [
    ("-ngld 3", 3),
    ("--gpu-layers-draft 99", 99),
    ("--n-gpu-layers-draft 1", 1),
    ("--spec-draft-ngl 0", 0),
    ("-ngld all", -1),
    ("--draft-params '-ngl 5'", 5),
    ("--draft-params '--gpu-layers 99'", 99),
]


@pytest.mark.parametrize(("line", "n"), LAYERS)
def test_layers_reach_the_struct(target: str, draft: str, line: str, n: int) -> None:
    settings = settings_of(f"-ngl 2 {line}", target, draft)
    assert settings.draft
    assert ModelStruct(settings.draft).raw.n_gpu_layers == n
    assert ModelStruct(settings.model).raw.n_gpu_layers == 2


PLACES = [
    ("-cmoed", EXPERTS),
    ("--cpu-moe-draft", EXPERTS),
    ("--spec-draft-cpu-moe", EXPERTS),
    ("-ncmoed 2", {name for name in EXPERTS if not name.startswith("blk.2")}),
    ("--n-cpu-moe-draft 1", {name for name in EXPERTS if name.startswith("blk.0")}),
    ("--spec-draft-n-cpu-moe 3", EXPERTS),
    ("--spec-draft-ncmoe 3", EXPERTS),
    ("-cmoed -ncmoed 2", EXPERTS),
    ("-otd ffn_up_exps=CPU", {name for name in EXPERTS if "up" in name}),
    ("--override-tensor-draft=exp", EXPERTS),
    ("--spec-draft-override-tensor attn_q=CPU", {f"blk.{i}.attn_q.weight" for i in range(3)}),
    ("--draft-params '-cmoe'", EXPERTS),
    ("--draft-params '-ncmoe 1 -ot attn_k=CPU'", {f"blk.{i}.attn_k.weight" for i in range(3)} | {
        name for name in EXPERTS if name.startswith("blk.0")
    }),
    ("", set()),
]  # fmt: skip


@pytest.mark.parametrize(("line", "tensors"), PLACES)
def test_tensors_go_where_they_are_put(
    target: str, draft: str, caplog: pytest.LogCaptureFixture, line: str, tensors: set[str]
) -> None:
    caplog.set_level(logging.DEBUG, logger="paceline.llama")
    with drafting(line, target, draft):
        assert set(moved(caplog)) == tensors


def test_the_targets_patterns_are_the_targets(target: str, draft: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="paceline.llama")
    with drafting("-ot=ffn", target, draft):
        assert {name for name in moved(caplog) if "exps" in name} == set()


THREADS = [
    ("-td 3", 3, 3),
    ("--threads-draft 2 -t 4", 2, 2),
    ("-td 2 -tbd 5", 2, 5),
    ("-t 4 -tb 6", 4, 6),
    ("-t 4 -tb 6 -td 2", 2, 2),
    ("-t 4 -tb 6 -tbd 3", 4, 3),
    ("--spec-draft-threads 2 --spec-draft-threads-batch 3", 2, 3),
    ("--threads-batch-draft 3", 1, 3),
    ("--draft-params '-t 2 -tb 3'", 2, 3),
]


@pytest.mark.parametrize(("line", "writing", "reading"), THREADS)
def test_threads_are_the_contexts(target: str, draft: str, line: str, writing: int, reading: int) -> None:
    with drafting(line, target, draft) as context:
        assert c.llama_n_threads(context.handle) == writing
        assert c.llama_n_threads_batch(context.handle) == reading


def n_bytes_of(line: str, target: str, draft: str) -> int:
    """Of a hundred tokens in the draft's cache."""
    with drafting(line, target, draft) as context:
        batch = context.new_batch()
        batch.add(0, range(100), 0, 1)
        context.decode(batch)
        return context.state_size(0)


TYPES = [
    ("-ctkd q8_0", (16 + 8.5) / 32),
    ("--cache-type-k-draft q4_0", (16 + 4.5) / 32),
    ("--spec-draft-type-k q5_1", (16 + 6) / 32),
    ("-ctvd q8_0", (16 + 8.5) / 32),
    ("--cache-type-v-draft q4_1", (16 + 5) / 32),
    ("--spec-draft-type-v iq4_nl", (16 + 4.5) / 32),
    ("-ctkd q8_0 -ctvd q8_0", 8.5 / 16),
    ("-ctkd f32 -ctvd f32", 2.0),
    ("--draft-params '-ctk q4_0 -ctv q4_0'", 4.5 / 16),
    ("-ctk q8_0 -ctv q8_0", 1.0),
]


@pytest.mark.parametrize(("line", "share"), TYPES)
def test_cache_types_show_in_the_memory_used(target: str, draft: str, line: str, share: float) -> None:
    assert n_bytes_of(line, target, draft) / n_bytes_of("", target, draft) == pytest.approx(share, abs=0.1)


WINDOWS = [
    ("-cd 512", 512),
    ("--ctx-size-draft 768", 768),
    ("--spec-draft-ctx-size 256", 256),
    ("--draft-params '-c 512'", 512),
    ("-cd 0", 2048),
    ("-cd 98304", 2048),
    ("", 1024),
]


@pytest.mark.parametrize(("line", "n"), WINDOWS)
def test_the_window_is_the_contexts_size(target: str, draft: str, line: str, n: int) -> None:
    with drafting(line, target, draft) as context:
        assert c.llama_n_ctx(context.handle) == n


@pytest.mark.parametrize(
    ("line", "n_batch", "n_ubatch"),
    [("--draft-params '-b 128 -ub 64'", 128, 64), ("-ub 256", None, 256), ("-ub 64 --draft-params '-ub 32'", None, 32)],
)
def test_batches_are_the_contexts(target: str, draft: str, line: str, n_batch: int | None, n_ubatch: int) -> None:
    with drafting(line, target, draft) as context:
        assert c.llama_n_ubatch(context.handle) == n_ubatch
        assert n_batch is None or c.llama_n_batch(context.handle) == n_batch


@linux
@pytest.mark.parametrize(
    ("line", "target_mapped", "draft_mapped"),
    [
        ("", True, True),
        ("--no-mmap", False, False),
        ("--draft-params --no-mmap", True, False),
        ("-lm none", False, False),
    ],
)
def test_files_are_mapped_or_read(target: str, draft: str, line: str, target_mapped: bool, draft_mapped: bool) -> None:
    with drafting(line, target, draft):
        assert (mapped(target), mapped(draft)) == (target_mapped, draft_mapped)


@linux
def test_both_are_locked_or_one(target: str, draft: str, caplog: pytest.LogCaptureFixture) -> None:
    sizes = []
    for line in ("", "--draft-params --mlock", "--mlock"):
        with drafting(line, target, draft):
            sizes.append(locked())
    if not any("failed to mlock" in message for message in caplog.messages):
        assert sizes[0] < sizes[1] < sizes[2]


def test_a_draft_is_placed_as_its_target_unless_it_has_devices_of_its_own(target: str, draft: str) -> None:
    def placed(line: str) -> tuple[object, ...]:
        found = settings_of(line, target, draft).draft
        assert found
        return found.devices, found.split_mode, found.tensor_split, found.main_gpu, found.load_mode, found.n_gpu_layers

    everything = "-dev CUDA0,CUDA1 -sm row -ts 3,1 -mg 1 -lm dio -ngl 5"
    assert placed(everything) == (("CUDA0", "CUDA1"), "row", (3.0, 1.0), 1, "dio", -1)
    assert placed(f"{everything} -devd CUDA1") == (("CUDA1",), "layer", (), 0, "dio", -1)
    assert placed(f"{everything} --draft-params '-sm none'")[1] == "none"
    for name in ("-devd", "--device-draft", "--spec-draft-device", "--draft-params -dev", "--draft-params --device"):
        first, _, rest = name.partition(" ")
        line = f"{first} '{rest} none'" if rest else f"{first} none"
        assert placed(f"{everything} {line}")[0] == (), line


DEVICES = [
    ("-devd cuda:0", "-devd"),
    ("--device-draft CUDA0", "-devd"),
    ("--spec-draft-device Vulkan1", "-devd"),
    ("-ngld 99", "-ngld 99"),
    ("-otd exps=CUDA1", "-otd/-cmoed/-ncmoed"),
    ("-cmoed -ncmoed 2", "-otd/-cmoed/-ncmoed"),
    ("--draft-params '-sm row'", "--draft-params -sm"),
    ("--draft-params '-dev CUDA0 -ngl 99'", "-ngld 99, -devd"),
    ("-dev CUDA0", "-dev"),
]


@no_gpu
@pytest.mark.parametrize(("line", "named"), DEVICES)
def test_what_only_a_gpu_could_obey_is_one_warning(
    target: str, draft: str, caplog: pytest.LogCaptureFixture, line: str, named: str
) -> None:
    with drafting(line, target, draft):
        warnings = [record.getMessage() for record in caplog.records if record.name == "paceline"]
    assert [warning for warning in warnings if f": {named} cannot act" in warning] == warnings
    assert len(warnings) == 1


LIMITS = [
    ("--draft 16", 16, 0, 0.75),
    ("--draft-max 16 --draft-min 1", 16, 1, 0.75),
    ("--draft-n 8 --draft-n-min 2", 8, 2, 0.75),
    ("--spec-draft-n-max 8 --spec-draft-n-min 3", 8, 3, 0.75),
    ("--draft-p-min 0.5", 16, 0, 0.5),
    ("--spec-draft-p-min 0.25", 16, 0, 0.25),
]


@pytest.mark.parametrize(("line", "n_max", "n_min", "p_min"), LIMITS)
def test_limits_are_the_drafters(target: str, draft: str, line: str, n_max: int, n_min: int, p_min: float) -> None:
    params = settings_of(line, target, draft).engine.drafters.draft_model
    assert (params.n_max, params.n_min) == (n_max, n_min)
    assert p_min == (0.75 if params.p_min is None else params.p_min)


def test_what_does_not_concern_a_draft_is_named(target: str, draft: str) -> None:
    parsed = parse(["-m", target, "-md", draft, "--draft-params", "--seed 1 --temp 0 --prio 1 -khad"], "serve")
    named = [warning for warning in parsed.warnings if "does not concern a draft model" in warning]
    assert [warning.split()[1] for warning in named] == ["-s", "--temp", "--prio"]
    assert any(warning.startswith("-khad has no effect") for warning in parsed.warnings)


def test_draft_params_know_every_flag_a_draft_can_have(target: str, draft: str) -> None:
    """The same settings by the draft's own flags, and by the target's within quotes."""
    own = "-ngld 4 -devd none -td 2 -tbd 3 -ctkd q8_0 -ctvd q8_0 -otd a=CPU -cmoed -ncmoed 1 -cd 512 -Cd 1 -Cbd 1"
    quoted = "-ngl 4 -dev none -t 2 -tb 3 -ctk q8_0 -ctv q8_0 -ot a=CPU -cmoe -ncmoe 1 -c 512 -C 1 -Cb 1"

    def of_the_draft(line: str) -> tuple[object, ...]:
        settings: Settings = settings_of(line, target, draft)
        return settings.draft, settings.draft_context, settings.engine.drafters.draft_model

    assert of_the_draft(f"--draft-params '{quoted}'") == of_the_draft(own)
    assert of_the_draft(f"--draft-params '{quoted}'") != of_the_draft("")
    assert of_the_draft(f"{own} --draft-params '-ngl 7'") == of_the_draft(own), "the draft's own flag wins"


def test_every_draft_flag_of_the_users_lines_is_here() -> None:
    known = flags_of("serve")
    tables = (LAYERS, PLACES, THREADS, TYPES, WINDOWS, DEVICES, LIMITS)
    here = {known[name] for table in tables for line, *_ in table for name in names(line)}
    roots = ("draft.", "draft_context.", "drafters.draft_model.")
    used = {name for line in SEEDS.read_text().splitlines() if not line.startswith("#") for name in names(line)}
    concerned = {name for name in used if any(path.startswith(roots) for path in known[name].fields)}
    assert {"-devd", "-ngld", "-ctkd", "-tbd", "-cd", "-cmoed"} <= concerned
    assert {name for name in concerned if known[name] not in here} == {"-md", "--model-draft", "--spec-replace"}


def names(line: str) -> list[str]:
    """Flags on a command line."""
    known = flags_of("serve")
    return [name for word in shlex.split(line) if (name := split(word, known)[0]) in known]
