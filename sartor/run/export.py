"""Models to take home: one client's model in one file, together with what its samples go through before it.

The model in the file is given a table's features as they are, in order, NaN where a number is missing (images: 0..255);
filling, scaling and saying what was missing happen inside. It gives what the trained model gives: for classes
logits, whose softmax are probabilities. The formats:

    .safetensors   weights with a JSON note and a checksum of both; `load` opens it. The only one that is not a program
    .onnx          for ONNX Runtime and the like (pip install 'sartor[onnx]')
    .pt2           torch.export's program
    .pt            TorchScript; PyTorch calls it deprecated in favour of .pt2 from 2.9 on
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import models
from ..data.inputs import Inputs, over_samples
from ..data.tables.columns import places
from ..errors import SartorError, need
from ..storage import load_sealed, replacing, save_tensors

SUFFIXES = (".safetensors", ".onnx", ".pt2", ".pt")


class Prepared(nn.Module):
    """A client's model, given samples as they are: it fills, scales and says what was missing as training did."""

    mean: Tensor
    std: Tensor
    fill: Tensor
    centre: Tensor
    spread: Tensor
    says_missing: Tensor  # [k] features that say where another one is missing
    of: Tensor  # [k] which one that is

    def __init__(self, model: nn.Module, inputs: Inputs, client: int | None) -> None:
        super().__init__()
        dtype = next(model.parameters()).dtype
        self.model, self.inputs, self.client = model, inputs, client
        self.kind = "images" if inputs.images else "table" if inputs.statistics else "numbers"
        if inputs.images is not None:
            for name, values in zip(("mean", "std"), inputs.images, strict=True):
                self.register_buffer(name, over_samples(values, inputs.shape, dtype))
        if inputs.statistics is not None:
            for name, own in zip(("fill", "centre", "spread"), inputs.statistics.of(client), strict=True):
                self.register_buffer(name, torch.from_numpy(own).to(dtype))
            where, k = places(inputs.columns), inputs.shape[0]
            gap = {where[c.name] + 1: where[c.name] for c in inputs.columns if c.missing}
            self.register_buffer("says_missing", torch.tensor([i in gap for i in range(k)]))
            self.register_buffer("of", torch.tensor([gap.get(i, i) for i in range(k)]))

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "images":
            x = (x.to(self.mean.dtype) / 255 - self.mean) / self.std
        if self.kind == "table":
            gone = torch.isnan(x)
            x = torch.where(self.says_missing, gone[:, self.of].to(x.dtype), x)
            x = (torch.where(torch.isnan(x), self.fill, x) - self.centre) / self.spread
        output: Tensor = self.model(x)
        return output


def suffix_of(path: Path) -> str:
    """The format that a file's name asks for."""
    need(path.suffix in SUFFIXES, f"a model is exported to a file that ends in {', '.join(SUFFIXES)}; got {path.name}.")
    return path.suffix


def write(path: Path, model: nn.Module, inputs: Inputs, client: int | None, about: dict[str, Any]) -> Path:
    """Write a client's model (None: for one that took no part) to a file whose name says the format."""
    kind = suffix_of(path)
    own = inputs.take([client]) if client is not None else inputs
    prepared = Prepared(model, own, None if client is None else 0).eval()
    note = about | {"inputs": own.plain()}
    if kind == ".safetensors":
        save_tensors(path, {k: v.clone() for k, v in model.state_dict().items()}, note, sealed=True)
        return path
    dtype = next(model.parameters()).dtype
    sample = torch.zeros(2, *inputs.shape, dtype=torch.uint8 if inputs.images else dtype)
    with replacing(path) as temporary, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # TorchScript and the exporter speak of their own future
        if kind == ".pt":
            traced = torch.jit.trace(prepared, sample)  # type: ignore[no-untyped-call]
            torch.jit.save(traced, str(temporary), _extra_files={"sartor.json": json.dumps(note)})
        else:
            rows = {0: torch.export.Dim("rows")}
            program = torch.export.export(prepared, (sample,), dynamic_shapes=(rows,))
            if kind == ".pt2":
                named = temporary.with_name("model.pt2")  # the format wants its suffix
                torch.export.save(program, named, extra_files={"sartor.json": json.dumps(note)})
                named.replace(temporary)
            else:
                _write_onnx(temporary, program, note)
    return path


def _write_onnx(path: Path, program: Any, note: dict[str, Any]) -> None:
    try:
        import onnx
        import onnxscript  # noqa: F401 (what torch.onnx writes with)
    except ImportError as e:
        raise SartorError("an .onnx file needs onnx and onnxscript: pip install 'sartor[onnx]'.") from e
    made = torch.onnx.export(
        program, input_names=["x"], output_names=["output"], dynamo=True, external_data=False, verbose=False
    )
    assert made is not None
    proto = made.model_proto
    onnx.helper.set_model_props(proto, {"sartor": json.dumps(note)})
    onnx.checker.check_model(proto)
    path.write_bytes(proto.SerializeToString())


def load_model(path: str | Path, model: nn.Module | None = None) -> Prepared:
    """The model of a .safetensors file that `Result.export` wrote; `model`: the architecture where it was your own."""
    path = Path(path)
    need(path.suffix == ".safetensors", f"load_model reads .safetensors files; got {path.name}.")
    tensors, note = load_sealed(path)
    need("inputs" in note and "model" in note, f"{path} is not a model that Result.export wrote.")
    inputs = Inputs.of(note["inputs"], str(path))
    if model is None:
        need(
            note["named"],
            f"{path} holds a {note['model']} of your own: give the architecture, as in load_model(path, MyModule()).",
        )
        model = models.build(note["model"], inputs.shape, outputs_of(inputs))
    model = model.to(next(v.dtype for v in tensors.values() if v.is_floating_point()))
    try:
        model.load_state_dict(tensors)
    except RuntimeError as e:
        raise SartorError(f"{path} does not fit a {type(model).__name__}: {' '.join(str(e).split())}") from e
    return Prepared(model.eval(), inputs, None if len(inputs.names) != 1 else 0).eval()


def outputs_of(inputs: Inputs) -> int:
    """How many outputs a model of these samples has."""
    return 1 if inputs.classes is None or inputs.ends is not None else inputs.classes


def said(output: Tensor, inputs: Inputs) -> np.ndarray:
    """Outputs as what they say: probabilities [n, classes], or one number [n, 1] (a value, or a margin)."""
    if inputs.classes is None or inputs.ends is not None:
        return inputs.in_units(output.reshape(len(output), 1).double()).numpy()
    return output.double().softmax(1).numpy()
