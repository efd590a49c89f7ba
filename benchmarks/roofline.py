"""How close we come to the machine's limit: our rounds against their matrix products and convolutions alone.

The bare program calls, at our shapes, only the products that a round cannot do without: forward and both backward
products of every layer (no gradient of the input), and the forward products of the evaluation. It gathers no data,
takes no steps and has no losses, activations or pooling; its operands are ready in memory and stay in the caches. Two
threads share the clients, each computing with one thread. Of several chunk sizes and memory layouts it is given the
fastest. So nothing can reach 100%.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from measure import AT_LEAST, Threads, emit, seconds, take_turns
from torch import Tensor
from work import CLASSES, TEST, WORKS, Work, federation, start

from sartor.rounds import play

ROUNDS = 10  # one of them with evaluation
SIDE_BY_SIDE = 2
TARGETS = {"softmax": None, "mlp": 0.5, "cnn": 0.75}
LAYERS = {"softmax": (784, 10), "mlp": (784, 100, 10)}
CHUNKS = (5, 10, 25, 50)
Program = Callable[[], object]


def side_by_side(job: Program, times: int) -> Program:
    """`times` jobs shared by two threads that compute with one thread each."""
    pool = ThreadPoolExecutor(SIDE_BY_SIDE)

    def half() -> None:
        for _ in range(times // SIDE_BY_SIDE):
            job()

    def program() -> None:
        with Threads(1):
            for done in [pool.submit(half) for _ in range(SIDE_BY_SIDE)]:
                done.result()

    return program


def dense(work: Work, sizes: tuple[int, ...], chunk: int) -> Program:
    """Ten rounds of a fully connected network: batched matrix products of `chunk` clients."""

    def operands(samples: int) -> list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]]:
        made = []
        for inside, outside in zip(sizes[:-1], sizes[1:], strict=True):
            x, W = torch.rand(chunk, samples, inside), torch.rand(chunk, outside, inside)
            slope, y = torch.rand(chunk, samples, outside), torch.empty(chunk, samples, outside)
            made.append((x, W, slope, y, torch.empty_like(W), torch.empty_like(x)))
        return made

    def job() -> None:
        training, scoring = operands(work.batch), operands(TEST)
        for _ in range(ROUNDS * work.steps):
            for x, W, _, y, _, _ in training:
                torch.bmm(x, W.mT, out=y)
            for layer, (x, W, slope, _, into, back) in enumerate(training):
                torch.bmm(slope.mT, x, out=into)
                if layer:
                    torch.bmm(slope, W, out=back)
        for _ in range(2):  # the personal and the global model
            for x, W, _, y, _, _ in scoring:
                torch.bmm(x, W.mT, out=y)

    return side_by_side(job, work.clients // chunk)


def convolutional(work: Work, layout: torch.memory_format) -> Program:
    """Ten rounds of the CNN: oneDNN convolutions and matrix products, client by client."""
    shapes = [((1, 28, 28), 32), ((32, 14, 14), 64)]
    sizes = (64 * 7 * 7, 512, CLASSES)
    around = ([1, 1], [2, 2], [1, 1], False, [0, 0], 1)  # stride, padding, dilation, transposed, -, groups

    def job() -> None:
        convolutions, linears = [], []
        for (channels, height, width), out in shapes:
            x = torch.rand(work.batch, channels, height, width).to(memory_format=layout)
            W = torch.rand(out, channels, 5, 5).to(memory_format=layout)
            slope = torch.rand(work.batch, out, height, width).to(memory_format=layout)
            convolutions.append((x, W, torch.rand(out), slope))
        for inside, outside in zip(sizes[:-1], sizes[1:], strict=True):
            linears.append(
                (torch.rand(work.batch, inside), torch.rand(outside, inside), torch.rand(work.batch, outside))
            )

        def forward(samples: int) -> None:
            for x, W, b, _ in convolutions:
                torch.ops.aten.convolution(x[:samples], W, b, *around)
            for x, W, _ in linears:
                torch.mm(x[:samples], W.T)

        for _ in range(ROUNDS * work.steps):
            forward(work.batch)
            for x, W, slope in linears:
                torch.mm(slope.T, x)
                torch.mm(slope, W)
            for layer, (x, W, _, slope) in enumerate(convolutions):
                wanted = [layer > 0, True, True]  # gradients of input, weight, bias
                torch.ops.aten.convolution_backward(slope, x, W, [W.shape[0]], *around, wanted)
        for _ in range(2):
            forward(TEST)

    return side_by_side(job, work.clients)


def bare(name: str) -> tuple[str, Program]:
    """The fastest bare program for this work, and what was chosen."""
    work = WORKS[name]
    if name == "cnn":
        layouts = {"rows": torch.contiguous_format, "channels last": torch.channels_last}
        programs = {k: convolutional(work, layout) for k, layout in layouts.items()}
    else:
        programs = {f"chunks of {c}": dense(work, LAYERS[name], c) for c in CHUNKS}
    times = {k: min(seconds(program) for _ in range(2)) for k, program in programs.items()}
    best = min(times, key=lambda k: times[k])
    return best, programs[best]


def compare(name: str, repeats: int) -> None:
    """FLAME's ten rounds, the last one evaluated, against the bare products."""
    chosen, program = bare(name)
    ours = start(WORKS[name], "flame", federation(WORKS[name]))

    def ten_rounds() -> None:
        for _ in play(ours, ours.round + ROUNDS, evaluate_every=ROUNDS):
            pass

    found = take_turns({"ours": ten_rounds, "bare": program}, repeats)
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
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    for name in [given.only] if given.only else WORKS:
        compare(name, 3 if name == "cnn" and given.repeats > 3 else given.repeats)


if __name__ == "__main__":
    main()
