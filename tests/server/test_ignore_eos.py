"""A text that may not end: replies say by which biases, as llama-server's do."""

from __future__ import annotations

import pytest

from tests.server.live import Live

pytestmark = pytest.mark.model


def test_what_is_ignored_is_shown(tiny: Live) -> None:
    eog = sorted(tiny.service.engine.vocab.eog)
    reply = tiny.post("/completion", prompt="on", n_predict=4, ignore_eos=True, logit_bias=[[65, 1.5]]).json()
    shown = reply["generation_settings"]["logit_bias"]
    assert shown == [{"token": 65, "bias": 1.5}, *({"token": token, "bias": None} for token in eog)]
    reply = tiny.post("/completion", prompt="on", n_predict=4).json()
    assert reply["generation_settings"]["logit_bias"] == []
