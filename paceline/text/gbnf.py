r"""GBNF, llama.cpp's grammar notation, to llguidance's Lark dialect. Knows the two notations; nothing of tokens.

llguidance cuts text into lexemes greedily, GBNF knows no lexemes: `[a-z]+ "x"` matches "abx". So a grammar whose rules
never come back to themselves becomes one single lexeme, a regular expression; any other gets lexemes of one character
each, which mean the same under both readings but take milliseconds a mask. llguidance's own `gbnf_to_lark` makes a
lexeme of every rule it can: faster, but "abx" is then refused; it also fails on `\u00e9` and on `.` before a newline.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.errors import ConfigError

_SCANNER = re.compile(
    r"""(?P<blank>[ \t]+|\#[^\r\n]*)
    | (?P<newline>\r\n|\r|\n)
    | (?P<head>[A-Za-z0-9_-]+[ \t]*::=)
    | (?P<name>[A-Za-z0-9_-]+)
    | (?P<literal>"(?:\\.|[^"\\])*")
    | (?P<set>\[(?:\\.|[^\]\\])*\])
    | (?P<repeat>[*+?]|\{\s*\d+\s*(?:,\s*\d*\s*)?\})
    | (?P<mark>[|().])""",
    re.VERBOSE | re.DOTALL,
)
_CHAR = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|(.)", re.DOTALL)
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}
_OPENS = ("|", "(")


@dataclass(frozen=True, slots=True)
class _Piece:
    kind: str
    text: str
    line: int

    def error(self, message: str) -> ConfigError:
        return ConfigError(f"the grammar is broken in line {self.line}: {message}")


def gbnf_to_lark(text: str) -> str:
    """The same language in Lark. The rule `root` is where it starts."""
    rules = _rules(text)
    if "root" not in rules:
        raise ConfigError("the grammar has no rule 'root'")
    used = _used(rules)
    regular = not _comes_back(used)
    names = {name: f"{'R' if regular else 'r'}{n}" for n, name in enumerate(used)}
    lines = [f"{names[name]}: {_body(rules[name], names, whole_literals=regular)}" for name in used]
    return "\n".join(["%llguidance {}", f"start: {names['root']}", *lines, ""])


def _scan(text: str) -> Iterator[_Piece]:
    at, line = 0, 1
    while at < len(text):
        match = _SCANNER.match(text, at)
        if match is None:
            raise _Piece("", "", line).error(f"cannot read {text[at : at + 20].splitlines()[0]!r}")
        kind = match.lastgroup or ""
        if kind != "blank":
            yield _Piece(kind, match.group(), line)
        line += len(re.findall(r"\r\n|\r|\n", match.group()))
        at = match.end()


def _rules(text: str) -> dict[str, list[_Piece]]:
    """Each rule's pieces. A rule ends with its line, unless a bracket is open or the line ends in `|` or `::=`."""
    rules: dict[str, list[_Piece]] = {}
    body: list[_Piece] | None = None
    open_brackets: list[_Piece] = []
    for piece in _scan(text):
        if piece.kind == "newline":
            if body and not open_brackets and body[-1].text != "|":
                body = None
        elif body is None:
            if piece.kind != "head":
                raise piece.error(f"expected a rule, found {piece.text!r}")
            body = rules[piece.text[:-3].strip()] = []
        else:
            _check_place(piece, body[-1] if body else None, open_brackets)
            body.append(piece)
    if open_brackets:
        raise open_brackets[-1].error("'(' is never closed")
    return rules


def _check_place(piece: _Piece, before: _Piece | None, open_brackets: list[_Piece]) -> None:
    if piece.kind == "head":
        raise piece.error(f"a new rule, {piece.text!r}, inside another one")
    if piece.kind == "repeat" and (before is None or before.text in _OPENS or before.kind == "repeat"):
        raise piece.error(f"{piece.text!r} repeats nothing")
    if piece.text == "(" and piece.kind == "mark":
        open_brackets.append(piece)
    if piece.text == ")" and piece.kind == "mark":
        if not open_brackets:
            raise piece.error("')' without '('")
        open_brackets.pop()


def _used(rules: dict[str, list[_Piece]]) -> dict[str, set[str]]:
    """The rules that can be reached from the root, each with those it refers to."""
    used: dict[str, set[str]] = {}
    todo = ["root"]
    while todo:
        name = todo.pop()
        if name in used:
            continue
        references = [piece for piece in rules[name] if piece.kind == "name"]
        for piece in references:
            if piece.text not in rules:
                raise piece.error(f"there is no rule {piece.text!r}")
        used[name] = {piece.text for piece in references}
        todo += sorted(used[name])
    return used


def _comes_back(used: dict[str, set[str]]) -> bool:
    """Whether any rule refers to itself, however indirectly: take away rules without references until none is left."""
    callers: dict[str, list[str]] = {name: [] for name in used}
    for name, references in used.items():
        for reference in references:
            callers[reference].append(name)
    n_open = {name: len(references) for name, references in used.items()}
    todo = [name for name, n in n_open.items() if n == 0]
    n_done = 0
    while todo:
        n_done += 1
        for caller in callers[todo.pop()]:
            n_open[caller] -= 1
            if n_open[caller] == 0:
                todo.append(caller)
    return n_done < len(used)


def _body(pieces: list[_Piece], names: dict[str, str], *, whole_literals: bool) -> str:
    words: list[str] = []
    for piece in [*pieces, None]:
        ends = piece is None or (piece.kind == "mark" and piece.text in ("|", ")"))
        if ends and (not words or words[-1] in _OPENS):
            words.append('""')
        if piece is not None:
            words.append(_word(piece, names, whole_literals=whole_literals))
    return " ".join(words)


def _word(piece: _Piece, names: dict[str, str], *, whole_literals: bool) -> str:
    if piece.kind == "name":
        return names[piece.text]
    if piece.kind == "literal":
        return _literal("".join(char for char, _ in _chars(piece)), whole=whole_literals)
    if piece.kind == "set":
        return _set(piece)
    if piece.kind == "repeat":
        return re.sub(r"\s", "", piece.text)
    return "/(?s:.)/" if piece.text == "." else piece.text


def _literal(text: str, *, whole: bool) -> str:
    if whole or len(text) < 2:
        return _quoted(text)
    return "(" + " ".join(map(_quoted, text)) + ")"


def _quoted(text: str) -> str:
    return "".join(json.dumps(char, ensure_ascii=char < "\U00010000")[1:-1] for char in text).join('""')


def _set(piece: _Piece) -> str:
    """`[a-z_]` as a regular expression, every character that may mean something there written as a number."""
    chars = _chars(piece)
    negated = bool(chars) and chars[0] == ("^", False)
    chars = chars[1:] if negated else chars
    if not chars:
        if negated:
            return "/(?s:.)/"
        raise piece.error("[] matches nothing")
    parts = []
    while chars:
        low, high, n = chars[0][0], chars[0][0], 1
        if len(chars) > 2 and chars[1] == ("-", False):
            high, n = chars[2][0], 3
        if high < low:
            raise piece.error(f"the range in {piece.text} runs backwards")
        parts.append(_number(low) if low == high else f"{_number(low)}-{_number(high)}")
        chars = chars[n:]
    return f"/[{'^' * negated}{''.join(parts)}]/"


def _number(char: str) -> str:
    return char if char.isascii() and char.isalnum() else f"\\u{{{ord(char):X}}}"


def _chars(piece: _Piece) -> list[tuple[str, bool]]:
    """The characters between the quotes or brackets, and whether each was written as an escape."""
    return [_char(piece, match) for match in _CHAR.finditer(piece.text, 1, len(piece.text) - 1)]


def _char(piece: _Piece, match: re.Match[str]) -> tuple[str, bool]:
    *codes, escaped, plain = match.groups()
    if plain is not None:
        return plain, False
    if escaped is None:
        code = int(next(filter(None, codes)), 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise piece.error(f"{match.group()} is not a character")
        return chr(code), True
    if escaped.isalnum() and escaped not in _CONTROL:
        raise piece.error(f"unknown escape {match.group()}")
    return _CONTROL.get(escaped, escaped), True
