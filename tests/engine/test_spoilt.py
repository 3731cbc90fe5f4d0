"""One text's NaN in the shared memory of the real libllama, where attention adds up what is masked too."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from paceline import Engine
from paceline.config import ContextParams, EngineParams, ModelParams, Settings
from paceline.errors import NoNumbers
from tests.tiny import write_model

BROKEN = 200


@pytest.mark.model
@pytest.mark.parametrize("flash_attn", [None, False])
def test_one_text_s_nan_spoils_no_other(
    flash_attn: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "model.gguf")
    add = gguf.GGUFWriter.add_tensor

    def broken(writer: gguf.GGUFWriter, name: str, tensor: np.ndarray) -> None:
        if name == "token_embd.weight":
            tensor[BROKEN] = np.nan
        add(writer, name, tensor)

    monkeypatch.setattr(gguf.GGUFWriter, "add_tensor", broken)
    write_model(Path(path), seed=1, scale=4.0)
    context = ContextParams(n_ctx=512, n_threads=1, flash_attn=flash_attn)
    settings = Settings(model=ModelParams(path=path), context=context, engine=EngineParams(n_slots=3))
    wish = {"max_tokens": 60, "temperature": 0, "ignore_eos": True, "logit_bias": {BROKEN: -np.inf}}
    with Engine.from_settings(settings) as engine:
        expected = engine.generate("hello there", **wish).text()  # type: ignore[arg-type]
        beside = engine.generate("hello there", **wish)  # type: ignore[arg-type]
        culprit = engine.generate([65, BROKEN, 66], max_tokens=20)
        with pytest.raises(NoNumbers):
            culprit.text()
        assert beside.text() == expected
        assert engine.generate("hello there", **wish).text() == expected  # type: ignore[arg-type]
