"""Two conversations in one event loop, with a time limit. python examples/async_chat.py [model.gguf]"""

import asyncio
import sys

from paceline import Engine


async def ask(engine: Engine, question: str) -> None:
    prompt = engine.chat_template.render([{"role": "user", "content": question}])
    generation = engine.generate(prompt, max_tokens=60, temperature=0, stop=["\n\n"])
    text = ""
    try:
        async with asyncio.timeout(30):
            async for chunk in generation:
                text += chunk.text
    except TimeoutError:
        text += " … (cut off)"
    print(f"{question}\n  {text.strip()}\n")


async def main() -> None:
    with Engine(*sys.argv[1:2], n_slots=2, n_ctx=2048) as engine:
        await asyncio.gather(ask(engine, "What is a paceline?"), ask(engine, "Why is the sky blue?"))


asyncio.run(main())
