"""Models to take home: one client's model in one file, together with what its samples go through before and after it.

The model in the file is given a table's rows as they are: a value for each column in order (the file's note says
which), NaN where it is missing, days since 1970 for a date; images 0..255. Filling, scaling, texts as features and
saying what was missing happen inside. It gives probabilities of the classes, or a number in the target's own units
(of an SVM the margin). Text is the number of the text in the column's list, from 0 on, and -1 for any other; ONNX is
given text as text. The formats:

    .safetensors   weights with a JSON note and a checksum of both; `load_model` opens it. The only one that is not a
                   program
    .onnx          for ONNX Runtime and the like (pip install 'sartor[onnx]'). A table with text columns has two inputs:
                   numbers [n, ...] and texts [n, ...]; others have one, x
    .pt2           torch.export's program
    .pt            TorchScript; PyTorch calls it deprecated in favour of .pt2 from 2.9 on
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .. import models
from ..data.inputs import Inputs, over_samples
from ..data.tables.columns import Column
from ..data.tables.objects import as_source
from ..data.tables.scan import to_days, to_numbers, to_texts
from ..errors import SartorError, need, see, unknown
from ..judge.decisions import Decision
from ..storage import load_sealed, replacing, save_tensors
from ..tasks.neighbours import votes_of, voting

SUFFIXES = (".safetensors", ".onnx", ".pt2", ".pt")


class Prepared(nn.Module):
    """A client's model, given samples as they are: it fills, scales and says what was missing as training did, and
    answers in probabilities or in the target's units."""

    mean: Tensor
    std: Tensor
    fill: Tensor
    centre: Tensor
    spread: Tensor
    column: Tensor  # [k] which value of a row each feature is made of
    says_missing: Tensor  # [k] features that say where a number is missing
    text: Tensor  # [k] features that stand for a text,
    number: Tensor  # [k] which one of its column; -1: all others
    blank: Tensor  # [k] the number of the empty text in the column, which a missing one is; -1: it has none
    texts: Tensor  # [k] how many the column has

    def __init__(self, model: nn.Module, inputs: Inputs, client: int | None, decision: Decision | None = None) -> None:
        super().__init__()
        self.decision = decision or Decision()
        dtype = _widest(p.dtype for p in model.parameters())
        self.model, self.inputs, self.client = model, inputs, client
        self.kind = "images" if inputs.images else "table" if inputs.statistics else "numbers"
        if inputs.images is not None:
            for name, values in zip(("mean", "std"), inputs.images, strict=True):
                self.register_buffer(name, over_samples(values, inputs.shape, dtype))
        if inputs.statistics is not None:
            for name, own in zip(("fill", "centre", "spread"), inputs.statistics.of(client), strict=True):
                self.register_buffer(name, torch.from_numpy(own).to(dtype))
            made = [row for at, c in enumerate(row_columns(inputs)) for row in _features(at, c)]
            for name, kind in (("column", torch.int64), ("says_missing", torch.bool), ("text", torch.bool)):
                self.register_buffer(name, torch.tensor([getattr(m, name) for m in made], dtype=kind))
            for name in ("number", "blank", "texts"):
                self.register_buffer(name, torch.tensor([getattr(m, name) for m in made], dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "images":
            x = (x.to(self.mean.dtype) / 255 - self.mean) / self.std
        if self.kind == "table":
            x = (self._features(x) - self.centre) / self.spread
        output: Tensor = self.model(x)
        if self.inputs.classes is None:
            return self.inputs.in_units(output)
        return output if self.inputs.ends is not None else self._recalibrated(output).softmax(-1)

    def _recalibrated(self, output: Tensor) -> Tensor:
        """Outputs whose softmax is what the decision makes of theirs."""
        if self.decision.scale == 1.0 and self.decision.shift == 0.0:
            return output
        second = torch.arange(output.shape[1], device=output.device) == 1
        return self.decision.scale * output + self.decision.shift * second

    def _features(self, x: Tensor) -> Tensor:
        """[n, k] of rows [n, columns], without gaps."""
        x = x[:, self.column]
        gone = torch.isnan(x)
        word = torch.where(gone, self.blank, x)
        known = (word >= 0) & (word < self.texts)
        text = (word == self.number) | (~known & (self.number < 0))
        x = torch.where(gone, self.fill, x)
        return torch.where(self.text, text.to(x.dtype), torch.where(self.says_missing, gone.to(x.dtype), x))

    def encode(self, table: Any) -> Tensor:
        """Rows [n, columns] from a data frame, a pyarrow table or a dict of columns: texts become numbers."""
        need(self.kind == "table", "encode is for tables; this model was trained on arrays: give them as they are.")
        source = as_source("the table", table)
        missing = [c.name for c in row_columns(self.inputs) if c.name not in source.columns]
        if missing:
            raise unknown("column of the table; the model was trained with", missing[0], source.columns)
        batches = list(source.batches())
        each = [[_values(c, batch.column(c.name)) for c in row_columns(self.inputs)] for batch in batches]
        rows = np.concatenate([np.column_stack(columns) for columns in each])
        return torch.from_numpy(rows).to(self.fill.dtype)


class _Feature(NamedTuple):
    """What a feature is made of; as the buffers of Prepared."""

    column: int
    says_missing: bool = False
    text: bool = False
    number: int = 0
    blank: int = 0
    texts: int = 0


def _features(at: int, column: Column) -> list[_Feature]:
    need(
        column.kind != "sentences",
        f"column {column.name} is embedded by a sentence encoder, which a file would lack; use sartor predict.",
    )
    if column.kind != "text":
        return [_Feature(at), *([_Feature(at, says_missing=True)] if column.missing else [])]
    count, blank = len(column.texts), column.texts.index("") if "" in column.texts else -1
    numbers = [*range(count), *([-1] if column.other else [])]
    return [_Feature(at, text=True, number=number, blank=blank, texts=count) for number in numbers]


def row_columns(inputs: Inputs) -> list[Column]:
    """The columns of which an exported model is given a value each, in order."""
    return [c for c in inputs.columns if c.features]


def _values(column: Column, values: Any) -> np.ndarray:
    """A column's values [n] as an exported model is given them."""
    if column.kind == "date":
        return to_days(values)
    if column.kind != "text":
        return to_numbers(values)
    where, texts = to_texts(values)
    known = {text: i for i, text in enumerate(column.texts)}
    numbers: np.ndarray = np.array([known.get(text, -1) for text in texts], dtype=np.float64)[where]
    return numbers


def suffix_of(path: Path) -> str:
    """The format that a file's name asks for."""
    need(path.suffix in SUFFIXES, f"a model is exported to a file that ends in {', '.join(SUFFIXES)}; got {path.name}.")
    return path.suffix


def write(
    path: Path,
    model: nn.Module,
    inputs: Inputs,
    client: int | None,
    about: dict[str, Any],
    decision: Decision | None = None,
) -> Path:
    """Write a client's model (None: for one that took no part) to a file whose name says the format. Recalibration is
    inside; a threshold stands in the note under "decision", as the model gives probabilities."""
    kind = suffix_of(path)
    own = inputs.take([client]) if client is not None else inputs
    prepared = Prepared(model, own, None if client is None else 0, decision).eval()
    about = about if decision is None else about | {"decision": decision.plain()}
    note = about | {"inputs": own.plain(), "takes": _takes(inputs, kind), "gives": _gives(inputs)}
    if kind == ".safetensors":
        note |= {} if (memory := votes_of(model)) is None else {"neighbours": memory}
        save_tensors(path, {k: v.clone() for k, v in model.state_dict().items()}, note, sealed=True)
        return path
    dtype = _widest(p.dtype for p in model.parameters())
    wide = (len(row_columns(inputs)),) if inputs.statistics is not None else inputs.shape
    sample = torch.zeros(2, *wide, dtype=torch.uint8 if inputs.images else dtype)
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
                _write_onnx(temporary, program, inputs, note)
    return path


def _takes(inputs: Inputs, kind: str) -> dict[str, list[str]]:
    """The model's inputs and, for a table, the columns of each."""
    columns = row_columns(inputs)
    texts = [c.name for c in columns if c.kind == "text"]
    if kind == ".onnx" and texts:
        return {"numbers": [c.name for c in columns if c.kind != "text"], "texts": texts}
    return {"x": [c.name for c in columns]}


def _gives(inputs: Inputs) -> str:
    if inputs.classes is None:
        return f"{inputs.target or 'the target'} in its own units"
    return "a margin: above 0 is the second class" if inputs.ends else f"probabilities of {', '.join(inputs.labels())}"


def _write_onnx(path: Path, program: Any, inputs: Inputs, note: dict[str, Any]) -> None:
    try:
        import onnx
        import onnxscript  # noqa: F401 (what torch.onnx writes with)
    except ImportError as e:
        raise SartorError("an .onnx file needs onnx and onnxscript: pip install 'sartor[onnx]'." + see("extras")) from e
    made = torch.onnx.export(
        program, input_names=["x"], output_names=["output"], dynamo=True, external_data=False, verbose=False
    )
    assert made is not None
    proto = made.model_proto
    if "texts" in note["takes"]:
        reading = _reading_text(proto, inputs)
        own_names = onnx.compose.add_prefix(proto, "model/", rename_outputs=False)
        proto = onnx.compose.merge_models(reading, own_names, io_map=[("row", "model/x")])
    onnx.helper.set_model_props(proto, {"sartor": json.dumps(note)})
    onnx.checker.check_model(proto)
    path.write_bytes(proto.SerializeToString())


def _reading_text(proto: Any, inputs: Inputs) -> Any:
    """An ONNX program that makes rows of numbers of two inputs, numbers and texts: it stands before the model."""
    from onnx import TensorProto, helper

    columns = row_columns(inputs)
    element = proto.graph.input[0].type.tensor_type.elem_type
    counts = {"numbers": 0, "texts": 0}
    nodes, constants, parts = [], [], []
    for i, column in enumerate(columns):
        source, part = "texts" if column.kind == "text" else "numbers", f"column_{i}"
        constants.append(helper.make_tensor(f"at_{i}", TensorProto.INT64, [1], [counts[source]]))
        counts[source] += 1
        picked = f"text_{i}" if source == "texts" else part
        nodes.append(helper.make_node("Gather", [source, f"at_{i}"], [picked], axis=1))
        if source == "texts":
            texts = list(column.texts) or [""]
            places = [float(k) for k in range(len(column.texts))] or [-1.0]
            words: dict[str, Any] = {"keys_strings": texts, "values_floats": places, "default_float": -1.0}
            nodes.append(helper.make_node("LabelEncoder", [picked], [f"number_{i}"], domain="ai.onnx.ml", **words))
            nodes.append(helper.make_node("Cast", [f"number_{i}"], [part], to=element))
        parts.append(part)
    nodes.append(helper.make_node("Concat", parts, ["row"], axis=1))
    given = [
        helper.make_tensor_value_info("numbers", element, ["rows", counts["numbers"]]),
        helper.make_tensor_value_info("texts", TensorProto.STRING, ["rows", counts["texts"]]),
    ]
    made = [helper.make_tensor_value_info("row", element, ["rows", len(columns)])]
    graph = helper.make_graph(nodes, "reading", given[counts["numbers"] == 0 :], made, constants)
    sets = [*proto.opset_import, helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=sets, ir_version=proto.ir_version)


def load_model(path: str | Path, model: nn.Module | None = None) -> Prepared:
    """The model of a .safetensors file that `Result.export` wrote; `model`: the architecture where it was your own.

    For example:

        >>> result = st.fit(st.FLAME(), model, clients, rounds=2)
        >>> path = result.export(0, "client-0.safetensors")
        >>> st.load_model(path, model)(clients.x[:3]).shape
        torch.Size([3, 10])
    """
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
    model = model.to(_widest([v.dtype for v in tensors.values() if v.is_floating_point()]))
    if "neighbours" in note:
        model = voting(model, note["neighbours"], tensors)
    try:
        model.load_state_dict(tensors, assign=True)  # a frozen part may have a type of its own
    except RuntimeError as e:
        raise SartorError(f"{path} does not fit a {type(model).__name__}: {' '.join(str(e).split())}") from e
    decision = Decision(**note["decision"]) if "decision" in note else None
    return Prepared(model.eval(), inputs, None if len(inputs.names) != 1 else 0, decision).eval()


def _widest(types: Iterable[torch.dtype]) -> torch.dtype:
    """What a model computes in: only a frozen part of it can be of a narrower type."""
    return reduce(torch.promote_types, types)


def outputs_of(inputs: Inputs) -> int:
    """How many outputs a model of these samples has."""
    return 1 if inputs.classes is None or inputs.ends is not None else inputs.classes


def said(output: Tensor, inputs: Inputs) -> np.ndarray:
    """Outputs as what they say: probabilities [n, classes], or one number [n, 1] (a value, or a margin)."""
    if inputs.classes is None or inputs.ends is not None:
        return inputs.in_units(output.reshape(len(output), 1).double()).numpy()
    return output.double().softmax(1).numpy()
