"""`paceline lookup-create`: counts which tokens follow which in text files, for `--spec-type ngram-cache -lcs FILE`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.progress import track

from paceline.cli.prompts import read_text
from paceline.config import ModelParams
from paceline.drafters.ngram_counts import build_static, write_counts
from paceline.errors import ConfigError
from paceline.llama.model import Model
from paceline.models import default_model


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="paceline lookup-create", description=__doc__)
    parser.add_argument("files", nargs="+", help="text files, UTF-8")
    parser.add_argument("-m", "--model", help="whose tokenizer to use; the demo model's without it")
    parser.add_argument("-o", "-lcs", "--lookup-cache-static", required=True, metavar="FILE", help="the file to write")
    args = parser.parse_args(argv)
    if not Path(args.lookup_cache_static).resolve().parent.is_dir():
        raise ConfigError(f"the folder of {args.lookup_cache_static} does not exist")
    texts = [read_text(file) for file in args.files]
    with Model(ModelParams(path=args.model or default_model(), vocab_only=True)) as model:
        bar = track(texts, "tokenising", console=Console(stderr=True))
        token_lists = [model.vocab.tokenize(text, special=False, parse_special=False) for text in bar]
    counts = build_static(token_lists)
    write_counts(args.lookup_cache_static, counts)
    n_tokens = sum(len(tokens) for tokens in token_lists)
    print(f"{args.lookup_cache_static}: {n_tokens} tokens of {len(texts)} files counted")
    return 0
