"""The same bits: about a hundred small runs, each as a hash of all that it leaves, held against the stored hashes.

    python tests/golden.py            compare with golden.json; exit code 1 where a run differs
    python tests/golden.py --record   write golden.json anew: only where a change of numbers is meant, and say why
    python tests/golden.py ditto ray  only cases whose name contains one of the words

A run's hash is over summary.json (times aside), clients.json, history.jsonl (times aside) and all tensors in models/.
Sums of floating-point numbers differ in their last bits between processors and versions of PyTorch. On the processor
that recorded the hashes they must be equal; on another one the losses must agree to 1e-3.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from commandline import good, hospitals, stop_in_round
from commandline import sartor as call
from sites import SMALL, Federation, tables, vectors

from sartor.run.recipe import Recipe
from sartor.storage import load_tensors

STORED = Path(__file__).with_name("golden.json")
Play = Callable[[Path], None]  # plays a case in a folder
SHORT = ("--rounds", "3", "--evaluate-every", "2", "--quiet")
DIGITS = ("--data", "digits", "--partition", "dirichlet=0.5", "--clients", "6")
METHODS = (
    *("flame", "flame-lp-proj", "pfedme", "ditto", "lp-proj-1", "lp-proj-2", "fedamp", "heurfedamp", "fedavg"),
    *("fedprox", "fedavg-ft", "fedprox-ft", "fedavg-es", "per-fedavg", "per-fedavg-fo", "apfl", "l2sgd", "l2gd"),
    *("mapper", "ewc", "skl", "lg-fedavg", "fedper", "fedrep", "rsa", "fedadmm", "scaffold", "term", "qffl"),
    *("fedmgda", "ifca", "mr-mtl", "local", "fedadam", "fedyogi", "fedadagrad", "fedavgm", "fedbabu", "fedala"),
    *("fedrod", "fedfomo", "fedlbfgs"),
)
SMALL_SETTINGS = {"lp-proj-1": "d_sub=5", "lp-proj-2": "d_sub=5", "flame-lp-proj": "d_sub=5", "pfedme": "R=3"}
ATTACKS = (
    *("label-poison", "dirty-labels", "gradient-flip", "same-value", "sign-flip", "gaussian", "random-update"),
    *("model-replacement", "scaled-poison", "alie", "ipm"),
)
AGGREGATORS = (
    *("median", "trimmed-mean", "geometric-median", "krum(f=1)", "multi-krum(f=1)", "clipping", "k-norm(k=1)"),
    *("k-loss(k=1)", "fedmgda"),
)
COMPRESSORS = ("projection", "sketch", "qsgd", "top-k(k=0.05)", "dgc", "lbgm", "int8", "int4", "float16")
PARTITIONS = ("iid", "labels=2", "shards=2", "quantity=0.5", "noise=0.1", "hybrid", "dominant", "power-law")
OTHERS: dict[str, tuple[str, ...]] = {
    "own head, fedavg": ("--method", "fedavg", "--personal", "head"),
    "own intercepts, flame": ("--method", "flame", "--personal", "bias", "--cohort", "3"),
    "own intercepts, ditto, unseen": ("--method", "ditto", "--personal", "bias", "--unseen", "0.3"),
    "cohort by size": ("--method", "flame", "--cohort", "3", "--sampling", "size"),
    "cohort by coins": ("--method", "fedamp", "--cohort", "3", "--sampling", "poisson"),
    "cohort, everybody trains": ("--method", "pfedme", "--cohort", "2", "--set", "train_all=true"),
    "absences": ("--method", "flame", "--drop", "0.3", "--stragglers", "0.3"),
    "late answers discarded": ("--method", "ditto", "--drop", "0.2", "--stragglers", "0.3", "--stale", "discard"),
    "unseen, flame": ("--method", "flame", "--unseen", "0.3", "--unseen-steps", "2"),
    "unseen, fedamp": ("--method", "fedamp", "--unseen", "0.3", "--unseen-steps", "2"),
    "unseen, ifca": ("--method", "ifca", "--unseen", "0.3", "--unseen-steps", "2"),
    "privacy at the server": ("--method", "ditto", "--dp-epsilon", "8", "--dp-clip", "0.3"),
    "privacy at the client": ("--method", "flame", "--dp-noise", "1", "--dp-where", "client"),
    "privacy of drawn cohorts": ("--method", "fedavg", "--dp-noise", "1", "--cohort", "3"),
    "disk store, flame": ("--method", "flame", "--store", "disk"),
    "disk store, fedamp": ("--method", "fedamp", "--store", "disk"),
    "dynamic lam, ditto": ("--method", "ditto", "--lams", "0.1,1,2"),
    "dynamic lam, flame": ("--method", "flame", "--lams", "0.05,0.5"),
    "both ways compressed": ("--method", "flame", "--compress", "top-k(k=0.1)", "--compress-down", "int8"),
    "budget": ("--method", "fedavg", "--budget", "60kB"),
    "best round": ("--method", "ditto", "--report", "best", "--evaluate-every", "1"),
    "oracle": ("--method", "ditto", "--oracle"),
    "float64": ("--method", "flame", "--dtype", "float64"),
    "serial engine": ("--method", "flame", "--engine", "serial"),
    "chunks and workers": ("--method", "ditto", "--chunk", "2", "--workers", "2"),
    "adam": ("--method", "ditto", "--solver", "adam", "--lr", "0.01"),
    "momentum and decay": ("--method", "fedavg", "--momentum", "0.9", "--weight-decay", "0.01"),
    "steps in place of epochs": ("--method", "flame", "--steps", "4", "--batch", "10"),
    "inexact solver": ("--method", "flame", "--solver", "inexact", "--model", "softmax"),
    "flame, global anchor": ("--method", "flame", "--set", "anchor=global", "--set", "weighting=size"),
    "ditto, fine-tuned": ("--method", "ditto", "--set", "joint=false"),
    "ditto on fedprox": ("--method", "ditto", "--set", "global_method=fedprox", "--set", "global_method.mu=0.3"),
    "ditto on scaffold": ("--method", "ditto", "--set", "global_method=scaffold"),
    "softmax": ("--method", "flame", "--model", "softmax"),
    "hostile and compressed": ("--method", "flame", "--attack", "ipm", "--attackers", "0.4", "--compress", "int8"),
}  # fmt: skip
CSV = ("--target", "outcome", "--client-key", "hospital")


def cases() -> Iterator[tuple[str, Play]]:
    """Every case by name."""
    for method in METHODS:
        own = ("--set", SMALL_SETTINGS[method]) if method in SMALL_SETTINGS else ()
        yield f"method {method}", _run("--method", method, "--model", "mlp(16)", *own)
        yield f"cohort of {method}", _run("--method", method, "--model", "mlp(16)", "--cohort", "3", *own)
    for attack in ATTACKS:
        for method in ("fedavg", "ditto"):
            yield f"attack {attack} on {method}", _run("--method", method, "--attack", attack, "--attackers", "0.34")
    for rule in AGGREGATORS:
        for method in ("fedavg", "flame", "pfedme"):
            yield f"aggregator {rule} of {method}", _run("--method", method, "--aggregator", rule)
    for code in COMPRESSORS:
        yield f"compressor {code}", _run("--method", "ditto", "--compress", code)
    for partition in PARTITIONS:
        yield f"partition {partition}", _run("--method", "flame", "--partition", partition)
    for name, words in OTHERS.items():
        yield name, _run(*words)
    for method in ("flame", "ditto", "fedavg-ft"):
        yield f"own table, {method}", _own("--method", method)
    for method in ("flame", "ditto", "fedavg-ft", "mocha"):
        yield f"own regression, {method}", _own("--method", method, "--model", "linear", target="level")
    for how in ("own", "raw"):
        yield f"own table, {how} columns", _own("--method", "ditto", "--columns", how)
    for method in ("local", "mr-mtl", "pfedme", "fedamp", "mixed-effects", "own-intercept", "fednewton"):
        yield f"own table, {method}", _own("--method", method)
        yield f"own regression, {method}", _own("--method", method, target="level")
    yield "own table, by steps", _own("--method", "ditto", "--solver", "sgd")
    yield "own table, lbfgs", _own("--method", "mr-mtl", "--solver", "lbfgs", "--ridge", "3")
    yield (
        "own table, auroc and class weights",
        _own("--method", "ditto", "--solver", "sgd", "--metric", "auroc", "--class-weights", "balanced"),
    )
    yield "own regression, exact", _own("--method", "flame", "--model", "linear", "--solver", "exact", target="level")
    for model in ("cnn", "cnn-flame", "cnn-flame-medical"):  # the last has dropout
        yield f"images, {model}", _images("--method", "ditto", "--model", model, "--rounds", "1")
    natural = ("--partition", "natural", "--model")
    yield "synthetic", _run("--method", "pfedme", "--data", "synthetic(0.5,0.5)", *natural, "softmax")
    if "SARTOR_DATA" in os.environ:
        for method in ("mocha", "flame"):
            yield f"vehicle, {method}", _run("--method", method, "--data", "vehicle", *natural, "svm")
    yield "resumed flame", _resumed("flame")
    yield "resumed ditto", _resumed("ditto")
    yield "ray", _run("--method", "flame", "--engine", "ray", "--workers", "1")
    yield "comparison under attack", _compared
    for method in ("flame", "ditto", "pfedme"):
        yield f"federation in one process, {method}", _federated(method)


def _run(*words: str) -> Play:
    def play(folder: Path) -> None:
        given = {w for w in words if w.startswith("--")}
        common = [*_without(SHORT, given), *_without(DIGITS, given)]
        model = () if "--model" in given else ("--model", "mlp(16)")
        done = call("run", *common, *model, *words, "--out", folder)
        assert done.code == 0, done.err  # on a busy machine Ray says there that it waits

    return play


def _without(pairs: tuple[str, ...], given: set[str]) -> list[str]:
    """The common options that a case does not give itself."""
    kept, words = [], iter(pairs)
    for word in words:
        value = [] if word == "--quiet" else [next(words)]
        kept += [] if word in given else [word, *value]
    if "synthetic" in " ".join(kept) or "--data" in given:
        kept = [w for w in kept if w not in ("--clients", "6")]
    return kept


def _own(*words: str, target: str = "sick") -> Play:
    def play(folder: Path) -> None:
        table = hospitals(folder.parent / "table.csv", names=("A", "B", "C", "D"), target=target)
        good("run", *SHORT, "--data", table, *CSV, *words, "--out", folder)

    return play


def _images(*words: str) -> Play:
    def play(folder: Path) -> None:
        draw = np.random.default_rng(0)
        y = draw.integers(0, 3, 120)
        x = draw.normal(size=(120, 1, 16, 16)) + y[:, None, None, None] * 0.3
        np.savez(folder.parent / "images.npz", x=x.astype(np.float32), y=y, key=np.arange(120) % 4)
        own = ("--data", folder.parent / "images.npz", "--client-key", "key", "--evaluate-every", "1")
        good("run", *own, *words, "--quiet", "--out", folder)

    return play


def _resumed(method: str) -> Play:
    def play(folder: Path) -> None:
        words = ("run", *DIGITS, "--method", method, "--model", "mlp(16)", "--checkpoint-every", "1", *SHORT)
        with stop_in_round(2):
            assert call(*words, "--out", folder).code == 130
        good("run", "--resume", folder, "--quiet")

    return play


def _compared(folder: Path) -> None:
    words = ("--methods", "fedavg,flame,local", "--attack", "none,sign-flip", "--attackers", "0.34")
    common = (*DIGITS, "--model", "softmax", "--rounds", "2", "--seeds", "0,1", "--quiet")
    good("compare", *common, *words, "--out", folder)


def _federated(method: str) -> Play:
    def play(folder: Path) -> None:
        found = Federation(folder, Recipe(method=method, **SMALL), tables(folder.parent / "tables"))
        found.play()
        (folder / "vectors.json").write_text(
            json.dumps(
                {k: hashlib.sha256(v).hexdigest() for k, v in sorted(vectors(folder).items()) if "/models/" in k}
            )
        )

    return play


def fingerprint(folder: Path) -> dict[str, Any]:
    """The hash of what a run has left, and its losses for processors that round otherwise."""
    found, numbers = hashlib.sha256(), {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.name == "summary.json":
            summary = _timeless(json.loads(path.read_text()))
            summary["data"] = Path(summary["data"]).name  # of a file, without the folder of this call
            for model in ("personal", "global", "chosen"):
                if summary.get(model):
                    numbers[f"{name} {model}"] = summary[model]["loss_mean"]
            found.update(f"{name} {json.dumps(summary, sort_keys=True)}".encode())
        elif path.name == "history.jsonl":
            lines = [_timeless(json.loads(line)) for line in path.read_text().splitlines()]
            found.update(f"{name} {json.dumps(lines, sort_keys=True)}".encode())
        elif path.name in ("clients.json", "vectors.json"):
            found.update(name.encode() + path.read_bytes())
        elif path.parent.name == "models" and path.suffix == ".safetensors":
            for key, tensor in sorted(load_tensors(path)[0].items()):
                found.update(f"{name} {key}".encode() + tensor.contiguous().numpy().tobytes())
    return {"hash": found.hexdigest()[:24], "loss": numbers}


def _timeless(line: dict[str, Any]) -> dict[str, Any]:
    """Without what a clock says, and without what is new since the hashes were recorded."""
    new = ("finetune_steps", "gradients_per_client", "local_steps", "own_work", "choice", "personal_model")
    return {k: v for k, v in line.items() if k not in ("seconds", *new)}


def machine() -> str:
    """What the last bits of a sum depend on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return f"{name}; torch {torch.__version__}; {torch.backends.cpu.get_cpu_capability()}"


def play_all(words: list[str]) -> dict[str, dict[str, Any]]:
    """Every case whose name holds one of the words, played in a folder of its own."""
    results: dict[str, dict[str, Any]] = {}
    for name, play in cases():
        if words and not any(w in name for w in words):
            continue
        place = Path(tempfile.mkdtemp(prefix="golden-"))
        try:
            play(place / "run")
            results[name] = fingerprint(place / "run")
        finally:
            shutil.rmtree(place)
        print(f"{results[name]['hash']}  {name}", flush=True)
    return results


def differences(stored: dict[str, Any], found: dict[str, dict[str, Any]]) -> list[str]:
    """The cases that are not what they were."""
    exact, wrong = stored["machine"] == machine(), []
    for name, now in found.items():
        was = stored["cases"].get(name)
        if was is None:
            wrong.append(f"{name}: not stored")
        elif exact and was["hash"] != now["hash"]:
            wrong.append(f"{name}: {was['hash']} has become {now['hash']}; losses {was['loss']} and {now['loss']}")
        elif was["loss"].keys() != now["loss"].keys():
            wrong.append(f"{name}: other models were scored")
        else:
            far = [k for k, v in was["loss"].items() if not math.isclose(v, now["loss"][k], rel_tol=1e-3, abs_tol=1e-3)]
            wrong += [f"{name}: the loss of {k} was {was['loss'][k]} and is {now['loss'][k]}" for k in far]
    return wrong


def main(arguments: list[str]) -> int:
    words = [a for a in arguments if not a.startswith("--")]
    found = play_all(words)
    if "--record" in arguments:
        kept = json.loads(STORED.read_text())["cases"] if words and STORED.exists() else {}
        STORED.write_text(json.dumps({"machine": machine(), "cases": kept | found}, indent=1) + "\n")
        print(f"{len(found)} cases recorded")
        return 0
    stored = json.loads(STORED.read_text())
    wrong = differences(stored, found)
    where = "to the bit" if stored["machine"] == machine() else "to 1e-3, as this is another processor"
    print(*wrong, f"{len(found) - len(wrong)} of {len(found)} cases are as stored, {where}", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
