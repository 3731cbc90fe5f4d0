from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from paceline import Chunk, Finish, Piece, Timings, Token
from paceline.cli import main as main_module
from paceline.cli.conversation import Chat, Message
from paceline.cli.flags import parse
from paceline.cli.main import main
from paceline.cli.options import Prompt
from paceline.cli.prompts import decode, prompt_text, read_text
from paceline.cli.report import json_object, summary, total
from paceline.cli.run import Task, collect
from paceline.cli.tint import RESET, Screen, color_of, wants_color
from paceline.cli.values import unescape
from paceline.drafters.names import NAMES
from paceline.engine.stats import DrafterStats
from paceline.errors import ConfigError, ContextFull, PromptError

if TYPE_CHECKING:
    from paceline import Generation

NGRAM = "ngram-simple"


def chunk(*words: tuple[str, str | None]) -> Chunk:
    pieces = tuple(Piece(text, Token(id=i, source=source)) for i, (text, source) in enumerate(words))
    return Chunk("".join(text for text, _ in words), pieces)


class FakeGeneration:
    """Chunks known beforehand; `interrupt_at` plays a Ctrl-C before that chunk."""

    def __init__(self, *chunks: Chunk, interrupt_at: int = -1, error: Exception | None = None) -> None:
        self.chunks = list(chunks)
        self.interrupt_at = interrupt_at
        self.error = error
        self.cancelled = False
        self.finish: Finish | None = None

    def cancel(self) -> None:
        self.cancelled = True

    def __iter__(self) -> Iterator[Chunk]:
        if self.error:
            raise self.error
        while self.chunks and not self.cancelled:
            self.interrupt_at -= 1
            if self.interrupt_at == -1:
                raise KeyboardInterrupt
            yield self.chunks.pop(0)
        timings = Timings(prompt_n=3, prompt_ms=30.0, predicted_n=4, predicted_ms=200.0, draft_n=4, draft_n_accepted=2)
        self.finish = Finish("cancelled" if self.cancelled else "stop", timings)


def fake(*chunks: Chunk, interrupt_at: int = -1, error: Exception | None = None) -> Generation:
    return cast("Generation", FakeGeneration(*chunks, interrupt_at=interrupt_at, error=error))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# -- the screen


def test_drafted_tokens_are_tinted_and_counted() -> None:
    screen = Screen(io.StringIO(), color=True)
    screen.show(chunk(("Once", None), (" upon", NGRAM), (" a", NGRAM), (" time", None)))
    tint = color_of(NGRAM)
    assert cast("io.StringIO", screen.stream).getvalue() == f"Once{tint} upon a{RESET} time"
    assert f"{tint}{NGRAM}{RESET} 2" in screen.legend()
    assert "the model itself 2" in screen.legend()


def test_without_color_the_text_is_untouched() -> None:
    screen = Screen(io.StringIO(), color=False)
    screen.show(chunk(("Once", None), (" upon", NGRAM)))
    screen.show(Chunk(" a"))
    screen.end_line()
    screen.end_line()
    assert cast("io.StringIO", screen.stream).getvalue() == "Once upon a\n"


def test_colors_are_stable_and_differ() -> None:
    assert len({color_of(name) for name in NAMES}) == len(NAMES)
    assert color_of("somebody-else's") == color_of("somebody-else's")


def test_who_gets_color() -> None:
    assert wants_color(None, Terminal(), {})
    assert not wants_color(None, io.StringIO(), {})
    assert not wants_color(None, Terminal(), {"NO_COLOR": "1"})
    assert not wants_color(None, Terminal(), {"TERM": "dumb"})
    assert not wants_color(False, Terminal(), {})
    assert wants_color(True, io.StringIO(), {"NO_COLOR": "1"})


# -- prompts


@pytest.mark.parametrize(
    ("written", "meant"),
    [(r"a\nb", "a\nb"), (r"a\\nb", r"a\nb"), (r"\x41\t\"", 'A\t"'), (r"\q\x", r"\q\x"), ("\\", "\\"), ("", "")],
)
def test_escapes(written: str, meant: str) -> None:
    assert unescape(written) == meant
    assert prompt_text(Prompt(text=written), escape=False) == written


def test_files_lose_one_newline_and_no_backslash(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"print('\\n')\n\n")
    assert prompt_text(Prompt(path=str(file)), escape=True) == "print('\\n')\n"


def test_what_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"caf\xe9")
    with pytest.raises(PromptError, match="byte 4 is 0xe9"):
        read_text(str(file))
    with pytest.raises(PromptError, match="UTF-8"):
        prompt_text(Prompt(text="caf\udce9"), escape=True)
    with pytest.raises(PromptError, match="line 3"):
        decode(b"\xff", "line 3")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="nowhere"):
        read_text(str(tmp_path / "nowhere"))


def test_a_job_needs_something_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(ConfigError, match="-p or -f"):
        Task.of(parse([], "run"))
    assert Task.of(parse(["-cnv"], "run")).chatting
    assert not Task.of(parse(["-p", "a"], "run")).chatting
    monkeypatch.setattr("sys.stdin", Terminal())
    assert Task.of(parse([], "run")).chatting
    with pytest.raises(ConfigError, match="--json"):
        Task.of(parse(["-cnv", "--json"], "run"))


# -- answers


def test_several_answers_come_one_after_another() -> None:
    screen = Screen(io.StringIO(), color=False)
    answers = collect([fake(chunk(("a", None)), chunk(("b", NGRAM))), fake(chunk(("c", None)))], ["", "> "], screen)
    assert cast("io.StringIO", screen.stream).getvalue() == "ab\n\n> c\n"
    assert [answer.text for answer in answers] == ["ab", "c"]
    assert answers[0].sources == [None, NGRAM]


def test_json_has_llama_servers_names() -> None:
    answers = collect([fake(chunk(("a", None), ("b", NGRAM)))], [""], Screen(io.StringIO(), color=False))
    found = json.loads(json.dumps(json_object(answers, [])))
    assert found["text"] == "ab"
    assert found["tokens"] == [0, 1]
    assert found["finish_reason"] == "stop"
    assert found["timings"]["predicted_per_second"] == pytest.approx(20.0)
    assert found["timings"]["prompt_per_token_ms"] == pytest.approx(10.0)
    assert set(found["timings"]) >= {"cache_n", "prompt_n", "prompt_ms", "predicted_n", "draft_n", "draft_n_accepted"}
    assert len(json_object(answers * 2, [])["results"]) == 2


def test_statistics_in_json_and_in_lines() -> None:
    stats = DrafterStats(NGRAM)
    stats.count(4, 2)
    answers = collect([fake(chunk(("a", None)))], [""], Screen(io.StringIO(), color=False))
    timings = [answer.timings for answer in answers]
    lines = summary(timings, [stats], 100.0)
    assert "20.00 tokens per second" in lines[1]
    assert lines[2] == "draft acceptance rate = 0.50000 (    2 accepted /     4 generated)"
    assert lines[3].startswith("statistics ngram_simple: #calls = 0, #gen drafts = 1")
    assert len(summary(timings, [], 100.0)) == 2
    assert "8 written" in summary(timings * 2, [], 100.0)[0]
    assert "8 tokens" in summary([total(timings * 2)], [])[1]
    assert json_object(answers * 2, [stats])["statistics"][0]["acceptance_by_position"] == [1.0, 1.0, 0.0, 0.0]


# -- chat


class Talk:
    """A chat whose answers are prepared."""

    def __init__(self, *answers: Generation, system: str | None = None) -> None:
        self.answers = list(answers)
        self.asked: list[list[Message]] = []
        self.said: list[str] = []
        self.chat = Chat(self.ask, Screen(io.StringIO(), color=False), self.said.append, system)

    def ask(self, messages: list[Message]) -> Generation:
        self.asked.append(list(messages))
        return self.answers.pop(0)

    @property
    def shown(self) -> str:
        return cast("io.StringIO", self.chat.screen.stream).getvalue()


def test_history_grows_and_clear_forgets_it() -> None:
    talk = Talk(fake(chunk(("Hi", None))), fake(chunk(("Yes", None))), fake(chunk(("No", None))), system="Be brief.")
    talk.chat.run(iter(["hello", "", "again", "/clear", "afresh", "/exit", "unheard"]))
    assert [len(messages) for messages in talk.asked] == [2, 4, 2]
    assert talk.asked[1][2] == {"role": "assistant", "content": "Hi"}
    assert talk.asked[2][0] == {"role": "system", "content": "Be brief."}
    assert talk.shown == "Hi\nYes\nNo\n"


def test_ctrl_c_stops_the_answer_and_keeps_what_was_said() -> None:
    talk = Talk(fake(chunk(("Well", None)), chunk((" then", None)), interrupt_at=1), fake(chunk(("Yes", None))))
    talk.chat.run(iter(["hello", "still there?"]))
    assert talk.asked[1][1]["content"] == "Well"
    assert [answer.reason for answer in talk.chat.answers] == ["cancelled", "stop"]


def test_a_question_that_does_not_fit_is_taken_back() -> None:
    talk = Talk(fake(error=ContextFull("prompt has 9 tokens, slot holds 5")), fake(chunk(("Yes", None))))
    talk.chat.run(iter(["far too long", "short"]))
    assert "prompt has 9 tokens" in talk.said[0]
    assert [message["content"] for message in talk.asked[1]] == ["short"]


def test_single_turn_and_unknown_commands() -> None:
    talk = Talk(fake(chunk(("Hi", None))))
    talk.chat.run(iter(["/halp", "/etc/passwd is what?", "unheard"]), single_turn=True)
    assert "unknown command /halp; /help lists them" in talk.said[0]
    assert len(talk.asked) == 1


def test_help_lists_every_command() -> None:
    talk = Talk()
    talk.chat.run(iter(["/help", "/quit", "unheard"]))
    assert [name for name in (*talk.chat.commands, "/exit", "/quit") if name not in talk.said[0]] == []


def test_a_question_is_asked_again_or_taken_back() -> None:
    talk = Talk(*(fake(chunk((word, None))) for word in ("Hi", "No", "Hello", "Yes")))
    talk.chat.run(iter(["/regen", "/undo", "hello", "again", "/undo", "/regen", "and now"]))
    assert talk.said == ["nothing was asked yet", "nothing was asked yet", "taken back"]
    assert [message["content"] for message in talk.asked[2]] == ["hello"]
    assert [message["content"] for message in talk.asked[3]] == ["hello", "Hello", "and now"]


def test_a_system_message_starts_afresh() -> None:
    talk = Talk(*(fake(chunk((word, None))) for word in ("Hi", "No", "Yes")), system="Be brief.")
    talk.chat.run(iter(["hello", "/system Be  rude.", "hello", "/reset", "/system", "hello"]))
    assert [messages[0]["content"] for messages in talk.asked] == ["Be brief.", "Be  rude.", "hello"]
    assert [len(messages) for messages in talk.asked] == [2, 2, 1]


def test_a_file_can_be_a_question(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("What is\nthis?\n")
    talk = Talk(fake(chunk(("That", None))))
    talk.chat.run(iter([f"/read {tmp_path / 'none'}", "/read", "/read -", f"/read {tmp_path / 'long'}"]))
    assert "cannot read" in talk.said[0]
    assert talk.said[1] == talk.said[2] == "/read wants the name of a file"
    assert talk.asked[0][0]["content"] == "What is\nthis?"


# -- the command


def test_errors_are_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["run", "--bogus"], ["rum"], ["-m", "x"], ["run", "-p", "x", "--top-p", "3"]):
        assert main(words) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("paceline: error: ")
        assert captured.err.count("\n") == 1


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--help"], ["run", "--help"], ["run", "-h"], ["--version"], ["run", "--version"]):
        assert main(words) == 0
        assert "paceline" in capsys.readouterr().out


def test_ctrl_c_is_exit_code_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(main_module, "dispatch", interrupted)
    assert main(["run"]) == 130
    assert "Traceback" not in capsys.readouterr().err
