"""Stream an answer and mark what was drafted. python examples/stream.py [model.gguf [draft.gguf]]"""

import sys

from paceline import Engine

model, draft, *_ = [*sys.argv[1:], None, None]
types = ["ngram-simple", "draft-simple"] if draft else ["ngram-simple"]

with Engine(model, draft=draft, spec_types=types, n_ctx=2048) as engine:
    prompt = engine.chat_template.render([{"role": "user", "content": "Count from one to thirty in words."}])
    generation = engine.generate(prompt, max_tokens=80, temperature=0)
    for chunk in generation:
        for piece in chunk.pieces:
            print(f"[{piece.text}]" if piece.token.source else piece.text, end="", flush=True)
    assert generation.finish
    timings = generation.finish.timings
    print(f"\n{timings.predicted_per_second:.1f} tokens/s, {timings.tokens_per_step:.2f} tokens per step")
