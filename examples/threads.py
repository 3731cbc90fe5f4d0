"""Several answers at once from threads, one model. python examples/threads.py [model.gguf]"""

import sys
from concurrent.futures import ThreadPoolExecutor

from paceline import Engine

TOPICS = ["the sea", "a clock", "bread", "rain"]

with Engine(*sys.argv[1:2], n_slots=4, n_ctx=4096) as engine:

    def write(topic: str) -> str:
        prompt = engine.chat_template.render([{"role": "user", "content": f"One sentence about {topic}."}])
        return engine.generate(prompt, max_tokens=40, temperature=0.8, seed=1).text()

    with ThreadPoolExecutor() as pool:
        for topic, text in zip(TOPICS, pool.map(write, TOPICS), strict=True):
            print(f"{topic}: {text}\n")
