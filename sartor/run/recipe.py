"""A run, declared once: every setting with its default, its help text and what may be done with it.

Settings come in groups. From this one declaration come the options of every command, the tables of recipe.toml, the
keyword groups of `fit`, what a checkpoint must agree with, what the parties of a federation must agree on, and the
command that repeats a run. Nothing here computes: `assemble` turns a recipe into a run, `play` plays it.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ..errors import SartorError, need, one_of, unknown
from ..storage import read_toml, write_text

if TYPE_CHECKING:
    import torch

    from ..compressors import Compressor
    from ..wrappers import Attack

Group = TypeVar("Group", bound="Settings")
CALIBRATIONS = ("none", "temperature", "platt")  # judge.decisions has what they are
# What models are scored and chosen by: judge.prediction_metrics has what they are (and imports too much for --help).
METRICS = ("auto", "accuracy", "auroc", "auprc", "balanced-accuracy", "f1", "log-loss", "brier", "r2", "mae", "rmse")
WHOLE = 2**31  # whole numbers are below this, unless a setting says another bound


@dataclass(frozen=True)
class About:
    """What is known of a setting besides its name and type."""

    default: Any
    help: str
    group: str = ""
    type: str = ""
    common: bool = False  # among the dozen options that most people need
    free: bool = False  # may change when a run goes on from its checkpoint
    idle: bool = False  # changes nothing in a run's numbers
    own: bool = False  # each party of a federation has its own: nobody need agree on it
    pretended: bool = False  # what only a simulation can pretend; a real federation refuses it
    undeployed: str = ""  # why a real federation cannot do it yet
    least: int | None = None
    below: int = WHOLE  # of whole numbers
    share: bool = False  # a share of clients, in [0, 1)
    choices: tuple[str, ...] = ()
    names: str = ""  # the kind of `sartor list` that it names
    auto: bool = False  # the default depends on the rest, and the help text says how


def setting(default: Any, help: str, **about: Any) -> Any:
    """A field of a group."""
    metadata = {"about": About(default, help, **about)}
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Settings:
    """A group of settings. Plain values are checked; objects of the library are taken as they are."""

    title: ClassVar[str] = ""  # of its table in recipe.toml, and of its panel in --help

    def __post_init__(self) -> None:
        for name, about in _own_settings(type(self)):
            if (value := getattr(self, name)) is not about.default:  # defaults were checked once, for all
                object.__setattr__(self, name, _checked(name, about, value))


# Each group's fields have the names of the command line's options.


@dataclass(frozen=True)
class Data(Settings):
    """What is learnt from, and how it is dealt out to clients."""

    title = "data"
    data: str = setting(
        "digits",
        "a data set's name (sartor list datasets), a .csv, .parquet or .npz file, or a folder of them",
        common=True,
        own=True,
        names="datasets",
    )
    target: str | None = setting(None, "your table: the column to predict", common=True, own=True)
    client_key: str | None = setting(
        None, "your data: the column that names the client of each sample", common=True, own=True
    )
    leave_out: list[str] = setting([], "your table: a column to ignore; repeatable", own=True)
    text: list[str] = setting(
        [], "your table: a column of free text, embedded by a frozen sentence encoder; repeatable", own=True
    )
    task: str = setting(
        "auto",
        "your data: the target is a class or a number [whole numbers of at most 100 values, and text, are classes]",
        own=True,
        choices=("auto", "classification", "regression"),
    )
    columns: str = setting(
        "auto",
        "your table: scale numbers by everybody's statistics (pooled), each client's own (own), or not at all (raw) "
        "[pooled; with privacy own]",
        choices=("auto", "pooled", "own", "raw"),
        auto=True,
    )
    spellings: str = setting(
        "refuse",
        "client names that differ only in spelling: refuse them, keep them apart, or merge them (together)",
        own=True,
        choices=("refuse", "apart", "together"),
    )
    partition: str = setting(
        "auto",
        "how data are split among clients: hybrid, labels=2, dirichlet=0.5, ... [natural if the data name clients]",
        common=True,
        own=True,
        names="partitions",
        auto=True,
    )
    clients: int | None = setting(None, "number of clients [10, or all clients in the data]", common=True, own=True)
    minimum: int = setting(10, "minimum number of samples per client")
    parts: list[float] = setting([0.72, 0.08, 0.20], "shares of training, validation and test data")


@dataclass(frozen=True)
class Learning(Settings):
    """The method, its settings and solver, the model, how long and with which seed."""

    title = "method"
    method: str = setting("flame", "the method (sartor list methods)", common=True, names="methods")
    local_steps: int | None = setting(
        None,
        "minibatch gradients of each client in a round, which every method splits among its loops (pFedMe R·K, Ditto "
        "r + s) [run: the method's own; compare, tune and advise: the same for all]",
        least=1,
        auto=True,
    )
    settings: dict[str, Any] = setting({}, "the method's own fields")
    solver: dict[str, Any] = setting({}, "in place of the fields of the method's own solver")
    aggregator: str = setting(
        "mean", "how the server averages: mean, median, krum(f=2), ... (sartor list aggregators)", names="aggregators"
    )
    personal: str | None = setting(
        None,
        "parameters that stay at each client, of a method that shares a global model: bias, norm, head, or globs of "
        "their names, as in norm,*.lora_B",
    )
    model: str = setting(
        "auto",
        "softmax, mlp, mlp(200,100), dnn, 2nn, cnn, linear, svm, cnn1d, lstm, gru, transformer [what fits the data]",
        common=True,
        names="models",
        auto=True,
    )
    loss: str | None = setting(
        None, "cross-entropy, squared, hinge or squared-hinge [what fits the model]", names="losses"
    )
    class_weights: str = setting(
        "none",
        "what samples count in training: all alike (none), or every class the same in all clients together (balanced)",
        choices=("none", "balanced"),
        undeployed="sites do not tell how many samples of each class they have",
    )
    rounds: int = setting(50, "communication rounds", common=True, free=True, least=1)
    seed: int = setting(
        0, "the seed; the random seed; results depend only on it and the settings", common=True, least=0, below=2**63
    )


@dataclass(frozen=True)
class Federation(Settings):
    """Who takes part in a round, who fails to answer, who joins afterwards.

    A dropped client is not reached: it does not train and stays as it was. A straggler trains on what it was sent in
    this round, and its answer arrives in the next: there it counts ("use", unless the client answers anew) or is thrown
    away ("discard"). Both are drawn anew in every round.

        >>> who = st.Federation(cohort=3, drop=0.2)
        >>> result = st.fit(st.Ditto(), model, clients, rounds=2, federation=who)
    """

    title = "federation"
    cohort: int | None = setting(None, "clients per round [all]", common=True)
    sampling: str = setting(
        "uniform",
        "how the clients of a round are drawn: uniform, size, or poisson (each client independently)",
        choices=("uniform", "size", "poisson"),
    )
    drop: float = setting(0.0, "share of clients that cannot be reached in a round", share=True, pretended=True)
    stragglers: float = setting(0.0, "share of clients whose answer comes a round late", share=True, pretended=True)
    stale: str = setting("use", "late answers: use or discard", choices=("use", "discard"))
    secure_aggregation: bool = setting(
        False, "the server sees the sum of the messages of a round, and no single one (docs/secure-aggregation.md)"
    )
    secure_sites: int = setting(3, "with secure aggregation: so many sites at least must be left in a round", least=3)
    patience: int = setting(
        10, "stop after this many rounds in a row without any answer", free=True, idle=True, least=1
    )
    unseen: float = setting(0.0, "share of clients that take no part in training and join afterwards", pretended=True)
    unseen_steps: int = setting(10, "training visits of each client that joins afterwards")


@dataclass(frozen=True)
class Attacked(Settings):
    """Hostile clients. Scores are of the others.

    For example:

        >>> some = st.Attacked(st.attacks.SignFlip(), 0.2)
        >>> result = st.fit(st.FedAvg(aggregate=st.aggregators.Median()), model, clients, rounds=2, attack=some)
        >>> sum(row["hostile"] for row in result.clients)
        1
    """

    title = "attack"
    attack: str | Attack = setting(
        "none",
        "what hostile clients do: none, sign-flip, gaussian(std=1), ... (sartor list attacks)",
        pretended=True,
        names="attacks",
    )
    attackers: float | None = setting(
        None,
        "share of hostile clients; scores leave them out [0.2 with an attack, else 0]",
        pretended=True,
        auto=True,
    )


@dataclass(frozen=True)
class PrivacySettings(Settings):
    """Differential privacy of clients, or of their samples."""

    title = "privacy"
    dp_noise: float | None = setting(
        None,
        "differential privacy: the noise, as a multiple of the clip",
    )
    dp_epsilon: float | None = setting(
        None,
        "differential privacy: choose the noise for this epsilon",
    )
    dp_clip: float | None = setting(None, "clip the change a client sends to this length [1]")
    dp_delta: float | None = setting(None, "the delta of the guarantee [1e-5]")
    dp_where: str | None = setting(None, "where noise is added: server (trusted) or client [server]")
    dp_unit: str | None = setting(
        None,
        "who is protected: client (all its data), or sample (each row; noise and clip are of gradients) [client]",
    )
    dp_planned: int | None = setting(
        None, "with dp_unit = sample: the rounds that dp_epsilon lasts for [those of the run]", least=1
    )
    dp_accountant: str | None = setting(None, "rdp, or prv (tighter, but numerical) [rdp]")


@dataclass(frozen=True)
class Traffic(Settings):
    """Messages in fewer bytes, and runs that stop when enough bytes were sent or enough was learnt.

    For example:

        >>> result = st.fit(st.Ditto(), model, clients, rounds=2, traffic=st.Traffic(compress="top-k(k=0.05)"))
    """

    title = "traffic"
    compress: str | Compressor = setting(
        "none",
        "how messages are compressed: top-k(k=0.05), int8, ... (sartor list compressors)",
        names="compressors",
    )
    compress_down: str | Compressor = setting(
        "none",
        "the same for what the server sends to clients",
        names="compressors",
    )
    budget: str | int | None = setting(
        None,
        "stop before the bytes sent in both directions exceed this, for example 4MB or 328020",
        free=True,
        below=2**63,
    )
    target_accuracy: float | None = setting(
        None, "stop when the mean validation accuracy in an evaluated round reaches this", free=True
    )


@dataclass(frozen=True)
class Execution(Settings):
    """Where and with what the clients are computed. Numbers do not depend on it, but for dtype and device.

    For example:

        >>> result = st.fit(st.FLAME(), model, clients, rounds=2, execution=st.Execution(engine="serial"))
    """

    title = "execution"
    engine: str = setting(
        "local",
        "local (vectorised), serial (one client at a time, to find errors) or ray",
        free=True,
        idle=True,
        choices=("local", "serial", "ray"),
    )
    chunk: int | None = setting(
        None, "clients per chunk, computed together [as many as fit the cache]", free=True, idle=True
    )
    workers: int | None = setting(
        None,
        "chunks computed in parallel [2, or the number of cores; ray: the cluster's CPUs]",
        free=True,
        idle=True,
        below=1025,  # each has the model in its memory
    )
    address: str | None = setting(
        None, "a Ray cluster to join: auto or HOST:PORT [ray starts its own here]", free=True, idle=True
    )
    store: str = setting(
        "memory",
        "where client states are stored: memory, or disk (in --out)",
        own=True,
        idle=True,
        choices=("memory", "disk"),
    )
    dtype: str | torch.dtype = setting("float32", "float32 or float64")
    device: str = setting("cpu", "cpu, or cuda where there is one", own=True)


@dataclass(frozen=True)
class Evaluation(Settings):
    """When models are scored and kept, and which round is reported.

    For example:

        >>> often = st.Evaluation(evaluate_every=1, report="best")
        >>> result = st.fit(st.FLAME(), model, clients, rounds=2, evaluation=often)
        >>> [line["round"] for line in result.history]
        [1, 2]
    """

    title = "evaluation"
    metric: str = setting(
        "auto",
        "what models are scored and chosen by: auroc, auprc, balanced-accuracy, f1, log-loss, brier, mae, rmse, ... "
        "[auto: accuracy for classes, R² for numbers]",
        choices=METRICS,
        undeployed="its sites tell right answers and losses only",
    )
    folds: int = setting(
        0,
        "choose each client's model by so many folds of its samples, test data apart, and train on all of them; it "
        "takes as many more runs [0: by validation samples]",
        least=0,
        below=1000,
        undeployed="its sites play one run",
    )
    calibrate: str = setting(
        "none",
        "recalibrate each client's probabilities by its validation samples: temperature, or platt (two classes)",
        choices=CALIBRATIONS,
        free=True,
        idle=True,
        undeployed="validation samples stay at its sites",
    )
    threshold: str = setting(
        "none",
        "from which probability on the second of two classes is answered: a number, or tuned (on each client's "
        "validation samples) [none: the more probable class]",
        free=True,
        idle=True,
        undeployed="validation samples stay at its sites",
    )
    evaluate_every: int = setting(10, "rounds between evaluations", free=True, least=1)
    checkpoint_every: int = setting(10, "rounds between checkpoints", free=True, idle=True, least=1)
    training_loss: bool = setting(
        False,
        "at every evaluation also compute the loss on training samples (history.jsonl); it takes a pass over them",
        free=True,
        undeployed="its sites tell scores on validation and test samples only",
    )
    diagnostics: bool = setting(True, "compute residuals and curvature at every evaluation", free=True, idle=True)
    report: str = setting(
        "last", "the round to report: last, or best (on validation data)", idle=True, choices=("last", "best")
    )
    oracle: bool = setting(False, "also score a choice made on test data, as some papers do", free=True, idle=True)


GROUPS: tuple[type[Settings], ...] = (
    Data, Learning, Federation, Attacked, PrivacySettings, Traffic, Execution, Evaluation,
)  # fmt: skip
SETTINGS: dict[str, About] = {
    f.name: dataclasses.replace(f.metadata["about"], group=group.title, type=str(f.type))
    for group in GROUPS
    for f in dataclasses.fields(group)  # type: ignore[arg-type]
}
# Options of the command line that fill the solver's table: the field, its type, its help text.
SOLVER_OPTIONS: dict[str, tuple[str, str, str]] = {
    "solver": ("kind", "str", "sgd, adam, newton, lbfgs, exact, inexact [linear model of a table: newton]"),
    "lr": ("lr", "float", "the local solver's step size"),
    "epochs": ("epochs", "int", "local epochs per round"),
    "steps": ("steps", "int", "local steps per round, in place of epochs"),
    "batch": ("batch", "int", "minibatch size"),
    "momentum": ("momentum", "float", "the local solver's momentum"),
    "weight_decay": ("weight_decay", "float", "the local solver's weight decay"),
    "lr_decay": ("decay", "float", "what the step size is multiplied by after every round: 0.95 [none]"),
    "ridge": ("ridge", "float", "newton's and lbfgs's penalty: ridge/(2n) of the squared weights, n the samples"),
}


@dataclass(frozen=True, kw_only=True)
class Recipe(Data, Learning, Federation, Attacked, PrivacySettings, Traffic, Execution, Evaluation):
    """One run: all groups together, every value plain.

    For example:

        >>> recipe = st.Recipe(data="patients.csv", target="outcome", client_key="hospital", method="ditto")
        >>> print(recipe.toml().splitlines()[:3])
        ['[data]', 'data = "patients.csv"', 'target = "outcome"']
    """

    title = ""

    def values(self) -> dict[str, Any]:
        """Every setting by name, in the order of the groups."""
        return {name: getattr(self, name) for name in _names(type(self))}

    def group(self, kind: type[Group]) -> Group:
        """The settings of one group."""
        made = object.__new__(kind)
        made.__dict__.update({name: self.__dict__[name] for name, _ in _own_settings(kind)})  # checked already
        return made

    def replace(self, **changes: Any) -> Recipe:
        """The same with other values."""
        for name in changes:
            if name not in self.__dict__:
                raise TypeError(f"a recipe has no setting {name!r}.")
        made = copy.copy(self)
        for name, value in changes.items():  # the others were checked when this one was made
            made.__dict__[name] = _checked(name, SETTINGS[name], value) if name in SETTINGS else value
        return made

    def toml(self) -> str:
        """The text of recipe.toml: a table for each group. What is none is left out, as TOML has none."""
        import tomli_w

        return tomli_w.dumps(tables(self.values()))

    def save(self, folder: Path) -> None:
        """Write recipe.toml."""
        write_text(folder / "recipe.toml", self.toml())

    @classmethod
    def of(cls, values: Mapping[str, Any], where: str = "the recipe") -> Recipe:
        """A recipe from plain values by name; one clear line for the first thing that is wrong."""
        for name in values:
            if name not in _names(cls):
                raise unknown(f"key in {where}", name, _names(cls))
        try:
            return cls(**values)
        except SartorError as e:
            raise SartorError(f"{where}: {e}") from e

    @classmethod
    def load(cls, path: Path) -> Recipe:
        """Read a recipe.toml."""
        return cls.of(flat(read_toml(path, "A run folder has a recipe.toml; is this one?")), str(path))


def tables(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings by name as the tables of recipe.toml; what is none or empty is left out, as TOML has no none."""
    made: dict[str, dict[str, Any]] = {group.title: {} for group in GROUPS}
    for name in sorted(values, key=lambda name: isinstance(values[name], Mapping)):  # tables come last in a table
        if values[name] is not None and values[name] != {}:
            made[SETTINGS[name].group][name] = values[name]
    return {title: table for title, table in made.items() if table}


def flat(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of recipe.toml as settings by name. Before there were tables, all settings stood side by side."""
    values: dict[str, Any] = {}
    titles = [group.title for group in GROUPS]
    for title, table in tables.items():
        values |= table if title in titles and isinstance(table, Mapping) else {title: table}
    return values


def _names(kind: type[Recipe]) -> list[str]:
    """The settings of a recipe in the order of the groups; those that a subclass adds come last."""
    own = [f.name for f in dataclasses.fields(kind)]
    return [*(n for n in SETTINGS if n in own), *(n for n in own if n not in SETTINGS)]


_KNOWN: dict[type, list[tuple[str, About]]] = {}  # of each group, once: a study makes recipes by the hundred


def _own_settings(kind: type[Settings]) -> list[tuple[str, About]]:
    """What is known of a group's settings; a default is as `_checked` leaves it, and a list is no one's default."""
    if kind not in _KNOWN:
        names = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
        _KNOWN[kind] = [
            (name, dataclasses.replace(about, default=_checked(name, about, about.default)))
            for name, about in SETTINGS.items()
            if name in names
        ]
    return _KNOWN[kind]


_PLAIN: dict[str, tuple[type, str]] = {
    "int": (int, "a whole number"),
    "float": (float, "a number"),
    "str": (str, "text"),
    "bool": (bool, "true or false"),
    "list[str]": (str, "a list of texts"),
    "list[float]": (float, "a list of numbers"),
    "dict[str, Any]": (dict, "a table"),
    "None": (type(None), "none"),
}
# What TOML and JSON can hold: never an object of the library.
_BUILT_IN = (str, int, float, list, tuple, dict, type(None), datetime.date, datetime.time)


def _checked(name: str, about: About, value: Any) -> Any:
    """The value; a plain one of another type, or outside of its bounds, is refused. Whole numbers become floats where
    floats are wanted."""
    plain, others, wanted = _kinds(about.type)
    if others and not isinstance(value, _BUILT_IN):
        return value  # an attack, a compressor, a dtype: checked where it is used
    fitting = [fit for kind in plain if (fit := _as(value, kind)) is not NotImplemented]
    low = f" of at least {about.least}" if about.least is not None else ""
    need(bool(fitting), f"{name} is {wanted}{low}; got {value!r}.")
    if isinstance(fitting[0], int) and not isinstance(fitting[0], bool):
        need(fitting[0] < about.below, f"{name} is {wanted} below {about.below}; got {value!r}.")
        least = -about.below if about.least is None else about.least
        need(fitting[0] >= least, f"{name} is {wanted} of at least {least}; got {value!r}.")
    if about.share:
        need(0 <= fitting[0] < 1, f"{name} is a share of clients in [0, 1); got {value}.")
    if about.choices:
        one_of("a run", name, value, about.choices)
    return fitting[0]


@cache
def _kinds(annotation: str) -> tuple[list[str], bool, str]:
    """The plain kinds of value in an annotation, whether there are others, and the plain ones in words."""
    kinds = annotation.split(" | ")
    plain = [k for k in kinds if k in _PLAIN]
    return plain, len(plain) < len(kinds), " or ".join(_PLAIN[k][1] for k in plain if k != "None")


def _as(value: Any, kind: str) -> Any:
    """The value as that kind of plain value; NotImplemented where it is not."""
    wanted = _PLAIN[kind][0]
    if kind.startswith("list"):
        inside = [_as(v, wanted.__name__) for v in value] if isinstance(value, list | tuple) else [NotImplemented]
        return NotImplemented if NotImplemented in inside else inside
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e300 else NotImplemented
    if wanted is str and isinstance(value, str) and value != value.encode("utf-8", "replace").decode():
        return NotImplemented  # bytes of a command line that are no UTF-8: recipe.toml could not hold them
    good = isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
    return value if good else NotImplemented
