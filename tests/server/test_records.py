from __future__ import annotations

from paceline.config import ModelParams, Settings
from paceline.engine.request import Limits, Timings
from paceline.engine.stats import DrafterStats
from paceline.process.base import Info
from paceline.server.records import loaded_lines, request_lines


def loaded(drafters: tuple[str, ...] = (), draft: str | None = None, off: str | None = None) -> list[str]:
    settings = Settings(model=ModelParams(path="m/mine.gguf"), draft=ModelParams(path=f"m/{draft}") if draft else None)
    info = Info(
        description="llama 1B Q8_0",
        limits=Limits(2048, 100, 4),
        n_ctx_train=2048,
        n_embd=64,
        n_params=1,
        n_bytes=1,
        chat_template=None,
        drafters=drafters,
        devices=("EPYC", "H200"),
        speculation_off=off,
    )
    return loaded_lines(settings, info)


def test_what_is_loaded() -> None:
    assert loaded(("suffix", "draft-simple"), "small.gguf") == [
        "srv    load_model: loaded model 'mine.gguf' (llama 1B Q8_0)",
        "srv    load_model: devices: EPYC, H200",
        "srv    load_model: n_slots = 4, n_ctx_slot = 2048",
        "srv    load_model: drafters: suffix, draft-simple; draft model 'small.gguf'",
    ]


def test_who_drafts_or_why_nobody_does() -> None:
    assert loaded(("suffix",))[-1].endswith(": drafters: suffix")
    assert loaded()[-1].endswith(": no drafters")
    assert loaded(("suffix",), "small.gguf", "the model is recurrent")[-1].endswith(
        ": speculation is off: the model is recurrent"
    )


def test_a_request_with_drafts() -> None:
    stats = DrafterStats("ngram-simple")
    stats.asked(3, 1.5)
    stats.count(4, 2)
    timings = Timings(
        prompt_n=12,
        prompt_ms=123.456,
        predicted_n=20,
        predicted_ms=400.0,
        draft_n=4,
        draft_n_accepted=2,
        drafters=(stats,),
    )
    head = "slot print_timing: id  1 | task 7 | "
    lines = request_lines(1, 7, timings)
    assert all(line.startswith(head) for line in lines)
    assert [line.removeprefix(head) for line in lines] == [
        "prompt eval time =     123.46 ms /    12 tokens (   10.29 ms per token,    97.20 tokens per second)",
        "       eval time =     400.00 ms /    20 tokens (   20.00 ms per token,    50.00 tokens per second)",
        "      total time =     523.46 ms /    32 tokens",
        "draft acceptance rate = 0.50000 (    2 accepted /     4 generated)",
        stats.line(),
    ]


def test_a_request_without_anything() -> None:
    lines = request_lines(0, 123, Timings())
    assert len(lines) == 3
    assert lines[0].startswith("slot print_timing: id  0 | task 123 | prompt eval time =       0.00 ms /     0 tokens")
