"""A replica's process as Ray would start it, without Ray: a desk, and where it is on the first line that it prints."""

from __future__ import annotations

import sys
import threading
from dataclasses import asdict

import msgspec

from paceline.cluster.desk import Desk
from paceline.config import Settings
from paceline.process.supervisor import ChildEngine


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    desk = Desk(lambda on_progress: ChildEngine(settings, on_progress), "127.0.0.1")
    print(msgspec.json.encode(asdict(desk.place)).decode(), flush=True)
    threading.Thread(target=end_with_parent, args=(desk,), daemon=True).start()
    threading.Event().wait()


def end_with_parent(desk: Desk) -> None:
    sys.stdin.read()
    desk.close()
    raise SystemExit


if __name__ == "__main__":
    main()
