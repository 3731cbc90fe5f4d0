"""What a chat template writes around the texts of a chat. Knows strings; found by rendering marks and looking where
they went."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.errors import ModelError, PacelineError
from paceline.text.chat import ChatTemplate

SYSTEM, FIRST, ANSWER, SECOND = "1system1", "2first2", "3answer3", "4second4"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The pieces between the texts. `system` and `after_system` are empty where the template has no such turn."""

    before_user: str
    before_answer: str
    between: str
    system: str = ""
    after_system: str = ""


def surroundings(template: ChatTemplate) -> Surroundings:
    user = {"role": "user", "content": FIRST}
    chat = [user, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": SECOND}]
    before_user, after = cut(template.render([user]), FIRST)
    _, rest = cut(template.render(chat), FIRST)
    _, rest = cut(rest, ANSWER)
    between, _ = cut(rest, SECOND)
    try:
        system, rest = cut(template.render([{"role": "system", "content": SYSTEM}, user]), SYSTEM)
        after_system, _ = cut(rest, FIRST)
    except PacelineError:
        return Surroundings(before_user, after, between)
    return Surroundings(before_user, after, between, system, after_system)


def cut(text: str, mark: str) -> tuple[str, str]:
    before, found, after = text.partition(mark)
    if not found:
        raise ModelError("the target's chat template does not show the messages as they are; distill cannot use it")
    return before, after
