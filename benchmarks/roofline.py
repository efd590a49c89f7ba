"""How close we come to the machine's limit: our rounds against their matrix products and convolutions alone.

The bare program calls, at our shapes, only the products that a round cannot do without: forward and both backward
products of every layer (no gradient of the input), and the forward products of the evaluation. It gathers no data,
takes no steps and has no losses, activations or pooling; its operands are ready in memory and stay in the caches. Two
threads share the clients, each computing with one thread. Of several chunk sizes, orders of factors and memory layouts
it is given the fastest.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise, product

import torch
from measure import AT_LEAST, Threads, emit, seconds, take_turns
from torch import Tensor
from work import CLASSES, TEST, WORKS, Work, federation, start

from sartor.run.rounds import play

ROUNDS = 10  # one of them with evaluation
SIDE_BY_SIDE = 2
TARGETS = {"softmax": 0.8, "mlp": 0.7, "cnn": 0.85}
LAYERS = {"softmax": (784, 10), "mlp": (784, 100, 10)}
CHUNKS = (5, 10, 25, 50)
NARROW = 16  # outputs, below which W·xᵀ may be faster than x·Wᵀ
Program = Callable[[], object]


def side_by_side(make: Callable[[], Program], times: int) -> Program:
    """`times` jobs shared by two threads that compute with one thread each, on operands of their own."""
    pool = ThreadPoolExecutor(SIDE_BY_SIDE)
    jobs = [make() for _ in range(SIDE_BY_SIDE)]

    def half(job: Program) -> None:
        for _ in range(times // SIDE_BY_SIDE):
            job()

    def program() -> None:
        with Threads(1):
            for done in [pool.submit(half, job) for job in jobs]:
                done.result()

    return program


def dense(work: Work, sizes: tuple[int, ...], chunk: int, turned: bool, rounds: int) -> Program:
    """Rounds of a fully connected network: batched matrix products of `chunk` clients; `turned`: narrow layers' outputs
    are W·xᵀ."""

    def operands(samples: int) -> list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]]:
        made = []
        for inside, outside in pairwise(sizes):
            x, W = torch.rand(chunk, samples, inside), torch.rand(chunk, outside, inside)
            shape = (outside, samples) if turned and outside < NARROW else (samples, outside)
            slope, y = torch.rand(chunk, samples, outside), torch.empty(chunk, *shape)
            made.append((x, W, slope, y, torch.empty_like(W), torch.empty_like(x)))
        return made

    def forward(x: Tensor, W: Tensor, y: Tensor) -> None:
        if turned and W.shape[1] < NARROW:
            torch.bmm(W, x.mT, out=y)
        else:
            torch.bmm(x, W.mT, out=y)

    def make() -> Program:
        training, scoring = operands(work.batch), operands(TEST)

        def job() -> None:
            for _ in range(rounds * work.steps):
                for x, W, _, y, _, _ in training:
                    forward(x, W, y)
                for layer, (x, W, slope, _, into, back) in enumerate(training):
                    torch.bmm(slope.mT, x, out=into)
                    if layer:
                        torch.bmm(slope, W, out=back)
            for _ in range(2):  # the personal and the global model
                for x, W, _, y, _, _ in scoring:
                    forward(x, W, y)

        return job

    return side_by_side(make, work.clients // chunk)


def convolutional(work: Work, layout: torch.memory_format, rounds: int) -> Program:
    """Rounds of the CNN: oneDNN convolutions and matrix products, client by client."""
    shapes = [((1, 28, 28), 32), ((32, 14, 14), 64)]
    sizes = (64 * 7 * 7, 512, CLASSES)
    around = ([1, 1], [2, 2], [1, 1], False, [0, 0], 1)  # stride, padding, dilation, transposed, -, groups

    def make() -> Program:
        convolutions, linears = [], []
        for (channels, height, width), out in shapes:
            x = torch.rand(work.batch, channels, height, width).to(memory_format=layout)
            W = torch.rand(out, channels, 5, 5).to(memory_format=layout)
            slope = torch.rand(work.batch, out, height, width).to(memory_format=layout)
            convolutions.append((x, W, torch.rand(out), slope))
        for inside, outside in pairwise(sizes):
            slope = torch.rand(work.batch, outside)
            linears.append((torch.rand(work.batch, inside), torch.rand(outside, inside), slope))

        def forward(samples: int) -> None:
            for x, W, b, _ in convolutions:
                torch.ops.aten.convolution(x[:samples], W, b, *around)
            for x, W, _ in linears:
                torch.mm(x[:samples], W.T)

        def backward() -> None:
            for x, W, slope in linears:
                torch.mm(slope.T, x)
                torch.mm(slope, W)
            for layer, (x, W, _, slope) in enumerate(convolutions):
                wanted = [layer > 0, True, True]  # gradients of input, weight, bias
                torch.ops.aten.convolution_backward(slope, x, W, [W.shape[0]], *around, wanted)

        def job() -> None:
            for _ in range(rounds * work.steps):
                forward(work.batch)
                backward()
            for _ in range(2):
                forward(TEST)

        return job

    return side_by_side(make, work.clients)


def bare(name: str) -> tuple[str, Program]:
    """The fastest bare program for this work, and what was chosen; one round of each decides."""
    work = WORKS[name]
    made: dict[str, Callable[[int], Program]] = {}
    if name == "cnn":
        for layout in (torch.contiguous_format, torch.channels_last):
            made[str(layout).removeprefix("torch.").replace("_", " ")] = partial(convolutional, work, layout)
    else:
        for chunk, turned in product(CHUNKS, (False, True)):
            order = "W·xᵀ where that is narrow" if turned else "x·Wᵀ"
            made[f"chunks of {chunk} and {order}"] = partial(dense, work, LAYERS[name], chunk, turned)
    times = {k: min(seconds(program) for program in 3 * [make(1)]) for k, make in made.items()}
    best = min(times, key=lambda k: times[k])
    return best, made[best](ROUNDS)


def compare(name: str, repeats: int) -> None:
    """FLAME's ten rounds, the last one evaluated, against the bare products."""
    chosen, program = bare(name)
    ours = start(WORKS[name], "flame", federation(WORKS[name]))

    def ten_rounds() -> None:
        for _ in play(ours, ours.round + ROUNDS, evaluate_every=ROUNDS):
            pass

    found = take_turns({"ours": ten_rounds, "bare": program}, repeats, warm_up=0 if name == "cnn" else 1)
    emit(
        "roofline",
        f"{name} flame",
        ours=found["ours"] / ROUNDS,
        theirs=found["bare"] / ROUNDS,
        ratio=found["bare"] / found["ours"],
        target=TARGETS[name],
        sense=AT_LEAST,
        note=f"share of the bare products' speed; they ran fastest with {chosen}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(WORKS))
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    for name in [given.only] if given.only else WORKS:
        compare(name, min(given.repeats, 9) if name == "cnn" else given.repeats)


if __name__ == "__main__":
    main()
