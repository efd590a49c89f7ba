"""Models of sequences, the next-token loss and perplexity, and the data sets that have sequences."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import sartor as st
from sartor.core import Batch
from sartor.data.clients import Clients
from sartor.models import OF_TOKENS, build
from sartor.run.complete import clients_of
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe
from sartor.tasks.task import ModelTask, next_token

LETTERS, STEPS = 7, 12


def speakers(m: int = 4, seed: int = 0) -> Clients:
    """Roles whose letters follow each other by rules of their own; the last places of some are padding."""
    draw = np.random.default_rng(seed)

    def part(n: int, step: int) -> tuple[np.ndarray, np.ndarray]:
        text = (draw.integers(LETTERS, size=(n, 1)) + step * np.arange(STEPS + 1)) % LETTERS
        x, y = text[:, :-1].astype(np.float32), text[:, 1:].copy()
        y[0, -4:] = -1
        return x, y

    return Clients.from_parts(
        [{"train": part(10 + i, 1 + i % 3), "validation": part(3, 1 + i % 3), "test": part(4, 1 + i % 3)}
         for i in range(m)],
        LETTERS,
    )  # fmt: skip


def test_the_loss_is_the_mean_over_a_sequence_without_padding() -> None:
    draw = torch.Generator().manual_seed(0)
    output = torch.randn(3, 5, LETTERS, generator=draw)
    target = torch.randint(LETTERS, (3, 5), generator=draw)
    target[1, 3:] = -1
    found = next_token(output, target)
    for i, n in ((0, 5), (1, 3), (2, 5)):
        torch.testing.assert_close(found[i], F.cross_entropy(output[i, :n], target[i, :n]))
    torch.testing.assert_close(next_token(0 * output, target), torch.full((3,), math.log(LETTERS)))


@pytest.mark.parametrize("name", OF_TOKENS)
def test_nobody_sees_the_letters_to_come(name: str) -> None:
    model = build(name, (STEPS,), LETTERS, tokens=True).eval()
    x = torch.randint(LETTERS, (2, STEPS), generator=torch.Generator().manual_seed(1)).float()
    other = x.clone()
    other[:, 8:] = (other[:, 8:] + 1) % LETTERS
    said, again = model(x), model(other)
    assert said.shape == (2, STEPS, LETTERS)
    torch.testing.assert_close(said[:, :8], again[:, :8])
    assert not torch.allclose(said[:, 8:], again[:, 8:])


@pytest.mark.parametrize("name", [*OF_TOKENS, "cnn1d"])
def test_sequences_of_numbers_get_a_class(name: str) -> None:
    model = build(name, (3, 20), 5)
    x = torch.randn(2, 3, 20, generator=torch.Generator().manual_seed(1))
    assert model(x).shape == (2, 5)
    assert not torch.allclose(model(x), model(x.flip(2)))  # the order of steps counts


def stacked(tokens: bool) -> tuple[Batch, tuple[int, ...], int]:
    draw = torch.Generator().manual_seed(2)
    if not tokens:
        x, y = torch.randn(3, 4, 3, 20, generator=draw), torch.randint(5, (3, 4), generator=draw)
        return Batch(x.double(), y, torch.full((3, 4), 0.25).double(), torch.zeros(3, dtype=torch.int64)), (3, 20), 5
    text = torch.randint(LETTERS, (3, 4, STEPS + 1), generator=draw)
    y = text[..., 1:].clone()
    y[0, 0, 5:] = -1
    batch = Batch(text[..., :-1].double(), y, torch.full((3, 4), 0.25).double(), torch.zeros(3, dtype=torch.int64))
    return batch, (STEPS,), LETTERS


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("name", [*OF_TOKENS, "cnn1d"])
def test_the_gradients_of_a_stack_are_autograd_s(name: str, tokens: bool) -> None:
    if tokens and name == "cnn1d":
        return
    batch, shape, outputs = stacked(tokens)
    model = build(name, shape, outputs, tokens).double()
    task = ModelTask(model, "next-token" if tokens else "cross-entropy")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        task.probe(batch.x[0, :1], batch.y[0, :1])
    assert not said and task.vectorise == (name != "cnn1d")
    theta = torch.stack([task.init(s) for s in range(3)])
    found = task.grad(theta, batch)
    for i in range(3):
        torch.nn.utils.vector_to_parameters(theta[i], model.parameters())
        known = torch.autograd.grad(by_hand(model(batch.x[i]), batch.y[i]), list(model.parameters()))
        torch.testing.assert_close(found[i], torch.cat([g.reshape(-1) for g in known]))


def by_hand(output: Tensor, y: Tensor) -> Tensor:
    if y.dim() == 1:
        return F.cross_entropy(output, y)
    return torch.stack([F.cross_entropy(o[t >= 0], t[t >= 0]) for o, t in zip(output, y, strict=True)]).mean()


def test_perplexity_of_every_role() -> None:
    clients = speakers()
    model = build("transformer", (STEPS,), LETTERS, True)
    quick = st.Evaluation(diagnostics=False)
    result = st.fit(st.Ditto(solver=st.SGD(lr=0.3)), model, clients, rounds=2, evaluation=quick)
    found = result.perplexity("personal")
    for i in range(4):
        rows = clients.rows(i, "test")
        model = result.personal(i)
        with torch.no_grad():
            loss = float(by_hand(model(clients.x[rows]), clients.y[rows]))
            right = [
                (model(x[None])[0].argmax(-1) == y)[y >= 0]
                for x, y in zip(clients.x[rows], clients.y[rows], strict=True)
            ]
        assert found[i] == pytest.approx(math.exp(loss), rel=1e-4)
        assert result.clients[i]["personal_test_perplexity"] == pytest.approx(found[i])
        share = float(torch.stack([r.double().mean() for r in right]).mean())
        assert result.scores["personal/test/accuracy"][i] == pytest.approx(share)
    assert found.mean() < LETTERS  # better than guessing
    with pytest.raises(st.SartorError, match="perplexity is of the next-token loss"):
        st.fit(st.FedAvg(), st.models.layers(64, 10), st.data.load("digits").split("iid"), rounds=1).perplexity()


PLAY = "\n\n".join(
    [f"ROMEO:\n{'O, speak again, bright angel! ' * 41}", f"JULIET:\n{'Wherefore art thou? ' * 50}", "NURSE:\nAy."] * 2
)


def test_shakespeare_by_role(tmp_path: Path) -> None:
    (tmp_path / "tinyshakespeare.txt").write_text(PLAY)
    data = st.data.load("shakespeare", root=str(tmp_path), steps=16)
    assert set(data.keys) == {"ROMEO", "JULIET"}  # the nurse says less than half a piece
    letters = np.array(data.class_names)
    first = data.x[data.keys == "ROMEO"][0].astype(int)
    assert "".join(letters[first]) == "O, speak again, "
    assert "".join(letters[data.y[data.keys == "ROMEO"][0]]) == ", speak again, b"
    there = data.y >= 0
    assert there[:, :8].all() and not there.all()
    assert len(data.split("natural", seed=0)) == 2


def test_a_run_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tinyshakespeare.txt").write_text(PLAY)
    monkeypatch.setenv("SARTOR_DATA", str(tmp_path))
    recipe = Recipe(data="shakespeare(steps=16)", method="ditto", personal="head", rounds=1, diagnostics=False)
    *_, result = play_recipe(recipe, clients_of(recipe), tmp_path / "run")
    assert result.settings["model"] == "transformer" and result.task.kind == "next-token"
    assert (tmp_path / "run" / "summary.json").exists() and not (tmp_path / "run" / "metrics.json").exists()
    with pytest.raises(st.SartorError, match="softmax does not say the next token; use lstm, gru, transformer"):
        list(play_recipe(recipe.replace(model="softmax"), clients_of(recipe), None))
    with pytest.raises(st.SartorError, match="needs one label per sample"):
        list(play_recipe(recipe.replace(attack="label-poison", attackers=0.5), clients_of(recipe), None))


def test_har_by_person(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(60, 9, 128)).astype(np.float16), draw.integers(6, size=60)
    np.savez(tmp_path / "har.npz", x=x, y=y, subject=np.repeat([1, 2, 3], 20))
    clients = st.data.load("har", root=str(tmp_path)).split("natural", seed=0)
    assert clients.names == ["person 1", "person 2", "person 3"] and clients.x.shape == (60, 9, 128)


def test_bad_input_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARTOR_DATA", str(tmp_path))
    monkeypatch.setenv("SARTOR_CACHE", str(tmp_path))
    model = build("transformer", (STEPS,), LETTERS, tokens=True)
    with pytest.raises(st.SartorError, match="takes sequences of at most 12 steps; got 13"):
        model(torch.zeros(1, STEPS + 1))
    short = build("transformer", (STEPS - 1,), LETTERS, tokens=True)
    with pytest.raises(st.SartorError, match=r"samples of shape \[12\]: this .* at most 11 steps; got 12\.$"):
        st.fit(st.FedAvg(), short, speakers(), rounds=1)
    for name in (*OF_TOKENS, "cnn1d"):
        with pytest.raises(st.SartorError, match=rf"{name} needs sequences \[channels, steps >= \d+\]"):
            build(name, (64,), 10)
    with pytest.raises(st.SartorError, match=r"shakespeare: tinyshakespeare.txt not found in .* put tiny"):
        st.data.load("shakespeare", root=str(tmp_path), download=False)


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_engines_agree_on_recurrent_models(name: str) -> None:
    """Serial, in chunks of two by two workers, and as the engine likes it."""
    model, quick = build(name, (STEPS,), LETTERS, True), st.Evaluation(diagnostics=False)
    found = [
        st.fit(st.Ditto(), model, speakers(), rounds=3, execution=execution, evaluation=quick).run.engine.save()
        for execution in (st.Execution(), st.Execution(engine="serial"), st.Execution(chunk=2, workers=2))
    ]
    for other in found[1:]:
        torch.testing.assert_close(other["state/v"], found[0]["state/v"], rtol=1e-5, atol=1e-6)
