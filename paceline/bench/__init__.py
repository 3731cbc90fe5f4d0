"""Measuring: the prompts, the runs, and the comparison with plain decoding."""
