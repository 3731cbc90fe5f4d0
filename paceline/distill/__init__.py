"""A draft for a target, made from the target alone: it writes text, and a small model learns to write the same.

The one room that knows torch (extra `distill`); nothing outside imports it before it is asked for. Writing and
training need no libllama, so both can run on a machine that has a GPU and nothing else.
"""
