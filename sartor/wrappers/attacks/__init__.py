"""Attacks: what hostile clients do to the federation, at one of four sites: their data, their gradients, their own
message, or all messages at once.

An attack acts on the message as it is sent: a model for FedAvg, u for FLAME, a point of the subspace for Lp-Proj. Where
a paper attacks updates, the update is the message minus what the client was sent. Who is hostile: see hostile.py.

    >>> some = st.Attacked(st.attacks.ALIE(), 0.2)
    >>> result = st.fit(st.Ditto(), model, clients, rounds=2, attack=some)
"""

from __future__ import annotations

from .all_messages import ALIE, IPM
from .attack import Attack
from .data import DirtyLabels, LabelPoison
from .own_message import Gaussian, GradientFlip, ModelReplacement, RandomUpdate, SameValue, ScaledPoison, SignFlip

NAMES: dict[str, type[Attack]] = {
    "label-poison": LabelPoison,
    "dirty-labels": DirtyLabels,
    "gradient-flip": GradientFlip,
    "same-value": SameValue,
    "sign-flip": SignFlip,
    "gaussian": Gaussian,
    "random-update": RandomUpdate,
    "model-replacement": ModelReplacement,
    "scaled-poison": ScaledPoison,
    "alie": ALIE,
    "ipm": IPM,
}

__all__ = [
    "ALIE",
    "IPM",
    "NAMES",
    "Attack",
    "DirtyLabels",
    "Gaussian",
    "GradientFlip",
    "LabelPoison",
    "ModelReplacement",
    "RandomUpdate",
    "SameValue",
    "ScaledPoison",
    "SignFlip",
]
