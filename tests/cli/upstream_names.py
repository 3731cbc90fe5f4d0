"""Every name and variable of llama-server's, out of its own help:

    llama-server --help | python tests/cli/upstream_names.py > tests/cli/upstream_names.txt

A line is one flag: its names, and its environment variable if it has one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator

NAMES = re.compile(r"-[\w.-]+(?:,\s+-[\w.-]+)*")
VARIABLE = re.compile(r"\(env: (\w+)\)")


def flags(lines: Iterable[str]) -> Iterator[list[str]]:
    """A flag begins at the left margin; what follows is indented. Rulers are made of dashes alone."""
    flag: list[str] = []
    for line in lines:
        names = NAMES.match(line)
        if names and not line.startswith("---"):
            if flag:
                yield flag
            flag = names[0].replace(",", " ").split()
        flag += VARIABLE.findall(line)
    if flag:
        yield flag


if __name__ == "__main__":
    print(
        "# Made by upstream_names.py from the help of llama-server 0.5.0, the version inside llama-cpp-python 0.3.36."
    )
    for flag in flags(sys.stdin):
        print(*flag)
