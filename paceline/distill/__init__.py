"""A draft or a head made of the target alone. Needs the extra `distill` (torch, gguf)."""
