"""Clients that report the loss of the received model beside their message; k-loss needs it."""

from __future__ import annotations

from ..core import ClientStack, Method, State
from .base import Wrapper


class Reporting(Wrapper):
    """Adds "loss" [c] to every message: f_i of the received model, before any training.

    Where what is received is no model (Lp-Proj's w lies in a subspace), it is f_i of the client's own model.
    """

    def __init__(self, method: Method, receives_model: bool) -> None:
        super().__init__(method)
        self.receives_model = receives_model

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        model = down["w"] if self.receives_model else self.method.personal(state, down, local)
        assert model is not None
        loss = local.full_loss(model)
        new, message = self.method.client(state, down, local)
        return new, message | {"loss": loss}
