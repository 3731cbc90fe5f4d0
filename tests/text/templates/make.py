"""Makes `rendered.json.xz`: what llama-server renders for each of llama.cpp's chat templates, and the templates.

    python -m tests.text.templates.make LLAMA_CPP LLAMA_SERVER

LLAMA_CPP is the source tree of the version that llama-cpp-python is built from (its sdist has it under
vendor/llama.cpp), LLAMA_SERVER a llama-server built from it. The templates are those of llama.cpp's models/templates,
whose repository is under the MIT licence; each text belongs to the publisher of its model and is kept here only to be
compared with. A refusal is kept as null. The day is kept too, since templates write it.
"""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from tests.text.templates.cases import CASES
from tests.tiny import write_model

DATA = Path(__file__).parent / "rendered.json.xz"
PORT = 9250


@contextmanager
def served(command: list[str]) -> Iterator[httpx.Client]:
    with subprocess.Popen([*command, "--port", str(PORT)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as it:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=30) as client:
                wait(client, it)
                yield client
        finally:
            it.kill()


def wait(client: httpx.Client, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if server.poll() is not None:
            raise RuntimeError("llama-server ended")
        try:
            if client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise RuntimeError("llama-server does not answer")


def rendered(client: httpx.Client, case: dict[str, Any]) -> str | None:
    response = client.post("/apply-template", json=case)
    return str(response.json()["prompt"]) if response.status_code == 200 else None


def made(llama_cpp: Path, llama_server: str) -> dict[str, Any]:
    templates: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "tiny.gguf")
        for path in sorted((llama_cpp / "models" / "templates").glob("*.jinja")):
            command = [llama_server, "-m", model, "-t", "1", "-c", "256", "--jinja", "--chat-template-file", str(path)]
            with served(command) as client:
                texts = {name: rendered(client, case) for name, case in CASES.items()}
                caps = client.get("/props").json()["chat_template_caps"]
            templates[path.stem] = {"source": path.read_text(encoding="utf-8"), "caps": caps, "rendered": texts}
            print(path.stem, sum(text is None for text in texts.values()), "refused", flush=True)
    return {"day": datetime.now().date().isoformat(), "templates": templates}


def main() -> None:
    data = made(Path(sys.argv[1]), sys.argv[2])
    DATA.write_bytes(lzma.compress(json.dumps(data, ensure_ascii=False, sort_keys=True).encode(), preset=9))
    print(DATA, DATA.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
