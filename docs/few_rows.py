"""What a server learns of rows from honest messages: the table in docs/threat-model.md.

    python docs/few_rows.py

A hospital with a few rows plays FedAvg as agreed on (softmax regression, one step over all its rows in each round),
with nine others. The server, which keeps to every rule, writes down the messages of all rounds. Afterwards it looks for
rows that would have sent the same messages: least squares from random starts, of which it keeps the best fit. It knows
nothing of the hospital but its number of rows and its columns.

The error of a row is its distance to the nearest row that was found, divided by its distance to the hospital's mean
row: 0 is read to the last digit, 1 is no better than the mean.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import least_squares

FEATURES, ROUNDS, LR, STARTS, SEEDS = 5, 50, 1.0, 8, 3
Hospital = tuple[np.ndarray, np.ndarray]  # rows [n, d] with a 1 at the end, outcomes [n]


def sigmoid(v: np.ndarray) -> np.ndarray:
    made: np.ndarray = 0.5 * (1 + np.tanh(v / 2))
    return made


def gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Models [r, d] → [r, d]: the mean slope of logistic loss at every round's model."""
    made: np.ndarray = (sigmoid(w @ x.T) - y) @ x / len(x)
    return made


def hospital(draw: np.random.Generator, rows: int) -> Hospital:
    x = np.column_stack([draw.normal(size=(rows, FEATURES)), np.ones(rows)])
    return x, (x @ draw.normal(size=FEATURES + 1) + 0.5 * draw.normal(size=rows) > 0).astype(float)


def play(victim: Hospital, others: list[Hospital]) -> tuple[np.ndarray, np.ndarray]:
    """The models of all rounds, and the victim's gradients, which its messages tell: (received − sent) / lr."""
    w, models, seen = np.zeros((1, FEATURES + 1)), [], []
    for _ in range(ROUNDS):
        steps = [gradient(w, *one) for one in (victim, *others)]
        models.append(w)
        seen.append(steps[0].astype(np.float32).astype(np.float64))  # as it travels
        w = w - LR * np.mean(steps, axis=0)
    return np.concatenate(models), np.concatenate(seen)


def invert(models: np.ndarray, seen: np.ndarray, rows: int, draw: np.random.Generator) -> np.ndarray:
    """The rows that fit the messages best."""

    def misfit(guess: np.ndarray) -> np.ndarray:
        table = guess.reshape(rows, FEATURES + 1)
        whole = np.column_stack([table[:, :FEATURES], np.ones(rows)])
        return 1e3 * (gradient(models, whole, sigmoid(table[:, -1])) - seen).ravel()

    fits = [least_squares(misfit, draw.normal(size=rows * (FEATURES + 1)), max_nfev=200) for _ in range(STARTS)]
    best: np.ndarray = min(fits, key=lambda fit: fit.cost).x.reshape(rows, FEATURES + 1)[:, :FEATURES]
    return best


def main() -> None:
    print("| rows that the hospital trains on | error of its rows, median | rows read to 1% |\n|---|---|---|")
    for rows in (1, 2, 3, 5, 10, 20):
        errors: list[float] = []
        for seed in range(SEEDS):
            draw = np.random.default_rng([seed, rows])
            victim = hospital(draw, rows)
            found = invert(*play(victim, [hospital(draw, 50) for _ in range(9)]), rows, draw)
            true = victim[0][:, :FEATURES]
            near = np.linalg.norm(true[:, None] - found[None], axis=2).min(1)
            spread = np.linalg.norm(true - (true.mean(0) if rows > 1 else 0), axis=1)
            errors += (near / spread).tolist()
        print(f"| {rows} | {np.median(errors):.2g} | {np.mean(np.array(errors) < 0.01):.0%} |", flush=True)


if __name__ == "__main__":
    main()
