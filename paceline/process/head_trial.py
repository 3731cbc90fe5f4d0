"""A process that finds out whether libllama can use a head with a target, by building what it would compute. It may die
of that: libllama asserts. Says how far it came: "loaded", "layers" once the target hands out its layers' inputs,
"target" once it hands out all that the head reads."""

from __future__ import annotations

import sys
from contextlib import ExitStack

from paceline.config import ContextParams, ModelParams
from paceline.llama.context import Context
from paceline.llama.hidden import NEXTN, Hidden, build_graph, has_last_state, target_layers
from paceline.llama.model import Model
from paceline.process.gguf_check import check_gguf
from paceline.process.heads import kind_of, open_heads

SHAPE = ContextParams(n_ctx=64, n_batch=32, n_ubatch=32, n_threads=1)


def main(target_path: str, head_path: str) -> None:
    with ExitStack() as stack:
        own = target_path == head_path
        target = stack.enter_context(Model(where_it_lies(target_path, mtp=own)))
        head = target if own else stack.enter_context(Model(where_it_lies(head_path, head=True, mtp=True)))
        print("loaded", flush=True)
        context = stack.enter_context(Context(target, SHAPE))
        name = kind_of(check_gguf(head_path)) or "draft-mtp"
        source = (NEXTN,) if name == "draft-mtp" else target_layers(head, target)
        Hidden(context.handle, target, [source])
        build_graph(context.handle)
        print("layers", flush=True)
        if NEXTN in source and not has_last_state(context):
            sys.exit(1)
        print("target", flush=True)
        for opened in open_heads(name, head, context, SHAPE, 32, stack.enter_context):
            build_graph(opened.handle)


def where_it_lies(path: str, *, head: bool = False, mtp: bool = False) -> ModelParams:
    """The file's own pages, on the processor: nothing is copied or computed."""
    return ModelParams(path=path, n_gpu_layers=0, use_extra_bufts=False, head=head, mtp=mtp)


if __name__ == "__main__":
    main(*sys.argv[1:3])
