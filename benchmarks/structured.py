"""JSON by a schema on the demo model: what do the grammar's forced tokens gain when they are drafted?

python -m benchmarks.structured [--kind Q8_0] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common import chat, guarded
from paceline import Engine, Grammar
from paceline.models import demo_copy

SCHEMA = {
    "type": "object",
    "properties": {
        "customer_name": {"type": "string", "maxLength": 30},
        "order_number": {"type": "integer", "minimum": 0, "maximum": 99999},
        "delivery_address": {
            "type": "object",
            "properties": {
                "street": {"type": "string", "maxLength": 30},
                "city": {"type": "string", "maxLength": 20},
                "country_code": {"enum": ["DE", "FR", "ES", "UK"]},
            },
            "required": ["street", "city", "country_code"],
            "additionalProperties": False,
        },
        "payment_method": {"enum": ["credit_card", "bank_transfer", "cash_on_delivery"]},
        "is_express_delivery": {"type": "boolean"},
    },
    "required": ["customer_name", "order_number", "delivery_address", "payment_method", "is_express_delivery"],
    "additionalProperties": False,
}
PROMPTS = [
    f"Write the order as JSON. {text}"
    for text in (
        "Anna Weber from Hamburg ordered number 4711, Lange Strasse 5, pays by bank transfer, express please.",
        "Order 812 goes to Pierre Martin, 12 rue de la Paix in Paris. He pays cash when it arrives. No hurry.",
        "Maria Lopez, Calle Mayor 3, Madrid, Spain, credit card, order 99, needs it tomorrow.",
        "John Smith of 10 High Street, London: order 1234, by card, normal delivery.",
    )
]
DRAFTERS: dict[str, list[str]] = {"none": [], "grammar": ["grammar"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default="Q8_0")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--exact", action="store_true", help="compare texts to the byte")
    args = parser.parse_args()
    path, _ = demo_copy(args.kind)
    engines = {
        name: Engine(path, n_ctx=1024, n_threads=2, spec_types=types, spec_policy="fixed", exact=args.exact)
        for name, types in DRAFTERS.items()
    }
    speeds: dict[str, list[float]] = {name: [] for name in engines}
    texts: dict[str, list[str]] = {name: [] for name in engines}
    accepted = drafted = 0
    for round_ in track(range(args.rounds + 1), "measuring", console=Console(stderr=True)):
        for prompt in PROMPTS:
            for name, engine in engines.items():
                grammar = Grammar.json_schema(SCHEMA)
                g = engine.generate(chat(engine, prompt), max_tokens=160, temperature=0, grammar=grammar)
                text = g.text()
                assert g.finish
                json.loads(text)
                if round_:
                    speeds[name].append(g.finish.timings.predicted_per_second)
                    texts[name].append(text)
                    accepted, drafted = accepted + g.finish.timings.draft_n_accepted, drafted + g.finish.timings.draft_n
    ratios = [b / a for a, b in zip(speeds["none"], speeds["grammar"], strict=True)]
    same = sum(a == b for a, b in zip(texts["none"], texts["grammar"], strict=True))
    result: dict[str, Any] = {
        "speedup": round(median(ratios), 3),
        "from": round(min(ratios), 3),
        "to": round(max(ratios), 3),
        "same_text": f"{same}/{len(ratios)}",
        "acceptance": accepted / max(1, drafted),
    }
    table = Table("drafter", "tokens/s")
    for name, values in speeds.items():
        table.add_row(name, f"{median(values):.1f}")
    Console().print(table)
    for engine in engines.values():
        engine.close()
    print(json.dumps(result))


if __name__ == "__main__":
    guarded(main)
