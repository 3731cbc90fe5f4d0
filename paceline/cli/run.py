"""`paceline run`: continue prompts, or chat, on this terminal."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from paceline.cli import build
from paceline.cli.conversation import GREETING, Chat, Message, piped_lines, typed_lines
from paceline.cli.fetching import with_files
from paceline.cli.flags import Parsed
from paceline.cli.options import RequestOptions, RunOptions
from paceline.cli.progress import loading_bar
from paceline.cli.prompts import prompt_texts, read_text, system_text
from paceline.cli.report import Answer, json_object, summary, total
from paceline.cli.tint import Screen, wants_color
from paceline.config import SamplingParams
from paceline.engine.request import Grammar
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline import Chunk, Engine, Generation, Timings


def main(parsed: Parsed) -> int:
    """With a model on other machines the engine has a process of its own: libllama ends it when one of them is lost."""
    task = Task.of(parsed)
    settings = with_files(build.settings(parsed), parsed)
    from paceline import Engine, garbage

    with loading_bar(settings.model.path) as on_progress:
        engine = Engine.from_settings(settings, on_progress, process=bool(settings.workers))
    garbage.settle()
    with engine:
        if task.chatting:
            converse(engine, task)
        else:
            complete(engine, task)
    return 0


@dataclass(frozen=True, slots=True)
class Task:
    """What to do, read and checked before a model is loaded."""

    options: RunOptions
    request: RequestOptions
    sampling: SamplingParams
    prompts: list[str]
    system: str | None
    grammar: Grammar | None = None

    @classmethod
    def of(cls, parsed: Parsed) -> Task:
        options, request = build.run_options(parsed), build.request(parsed)
        prompts = prompt_texts(options, escape=request.escape)
        system = system_text(options, escape=request.escape)
        task = cls(options, request, build.sampling(parsed), prompts, system, grammar_wanted(request))
        if not prompts and not task.chatting:
            raise ConfigError("nothing to continue: give a prompt with -p or -f, or chat with -cnv")
        return task

    @property
    def chatting(self) -> bool:
        """Asked for; or nothing else to do, and somebody is there to talk to."""
        if self.options.conversation is not None:
            return self.options.conversation
        return not self.prompts and not self.options.json and sys.stdin.isatty()

    def start(self, engine: Engine, prompt: str) -> Generation:
        request = self.request
        return engine.generate(
            prompt,
            sampling=self.sampling,
            max_tokens=request.max_tokens,
            stop=request.stop,
            grammar=self.grammar,
        )

    @property
    def shows_timings(self) -> bool:
        chosen = self.options.show_timings
        return sys.stderr.isatty() and not self.options.json if chosen is None else chosen


def grammar_wanted(request: RequestOptions) -> Grammar | None:
    """Files are read before the model is loaded."""
    for text, path, source_of in (
        (request.grammar, request.grammar_file, Grammar.gbnf),
        (request.json_schema, request.json_schema_file, Grammar.json_schema),
    ):
        source = read_text(path) if path else text
        if source is not None:
            return source_of(source)
    return None


def complete(engine: Engine, task: Task) -> None:
    """All prompts start at once; their texts come one after another."""
    started = time.perf_counter()
    prompts = [in_template(engine, prompt, task.system) for prompt in task.prompts]
    generations = [task.start(engine, prompt) for prompt in prompts]
    echoes = task.prompts if task.options.display_prompt else [""] * len(prompts)
    screen = screen_for(task.options)
    answers = collect(generations, echoes, screen)
    if task.options.json:
        print(json.dumps(json_object(answers, engine.drafter_stats()), ensure_ascii=False))
    wall_ms = 1e3 * (time.perf_counter() - started)
    close_with(
        screen,
        summary(timings_of(answers), engine.drafter_stats(), wall_ms, engine.explain()) if task.shows_timings else [],
    )


def in_template(engine: Engine, prompt: str, system: str | None) -> str:
    """A system message needs the chat template to be said in; without one the prompt is continued as it is."""
    if system is None:
        return prompt
    messages = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
    return engine.chat_template.render(messages)


def collect(generations: Sequence[Generation], echoes: Sequence[str], screen: Screen) -> list[Answer]:
    """Read every generation to its end, showing one at a time; a blank line between two."""
    answers: list[Answer] = []
    for generation, echo in zip(generations, echoes, strict=True):
        if answers:
            screen.end_line()
            screen.write("\n")
        screen.write(echo)
        answers.append(answer_of(generation, screen.show))
    screen.end_line()
    return answers


def answer_of(generation: Generation, show: Callable[[Chunk], None]) -> Answer:
    answer = Answer()
    for chunk in generation:
        answer.add(chunk)
        show(chunk)
    answer.end(generation.finish)
    return answer


def converse(engine: Engine, task: Task) -> None:
    """Prompts of the command line are the first questions; then stdin asks."""
    on_terminal = sys.stdin.isatty()
    screen = screen_for(task.options)
    template = engine.chat_template

    def ask(messages: list[Message]) -> Generation:
        return task.start(engine, template.render(messages))

    chat = Chat(ask, screen, tell, task.system)
    if on_terminal and not task.prompts:
        tell(GREETING)
    typed = typed_lines(tell) if on_terminal else piped_lines()
    chat.run(chain(task.prompts, typed), single_turn=task.options.single_turn)
    close_with(
        screen,
        summary([total(timings_of(chat.answers))], engine.drafter_stats(), why=engine.explain())
        if task.shows_timings
        else [],
    )


def timings_of(answers: Sequence[Answer]) -> list[Timings]:
    return [answer.timings for answer in answers]


def close_with(screen: Screen, lines: Sequence[str]) -> None:
    """The legend where there were tints, then the figures."""
    if screen.color and any(screen.counts):
        screen.write(f"\n{screen.legend()}\n")
    if lines:
        tell("\n" + "\n".join(lines))


def screen_for(options: RunOptions) -> Screen:
    if options.json:
        return Screen(io.StringIO(), color=False)
    return Screen(sys.stdout, color=wants_color(options.color, sys.stdout, os.environ))


def tell(text: str) -> None:
    """To the person, not to the pipe."""
    print(text, file=sys.stderr, flush=True)
