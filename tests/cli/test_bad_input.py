"""Bad input: one clear line on standard error, exit code 2, no traceback, and nothing saved is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commandline import OWN, QUICK, files, good, hospitals, refused, sartor

RUN = ("run", *QUICK)

# arguments, what the line must say
REQUESTS: list[tuple[tuple[object, ...], tuple[str, ...]]] = [
    (("rum",), ("command", "run")),
    (("run", "--metod", "flame"), ("--metod", "--method")),
    (("run", "--rounds", "many"), ("--rounds", "integer")),
    ((*RUN, "--method", "flam"), ("method", "flame")),
    ((*RUN, "--method", "xyz"), ("method", "known: apfl, ditto")),
    ((*RUN, "--data", "digit"), ("dataset", "digits")),
    ((*RUN, "--data", "nowhere.csv"), ("nowhere.csv",)),
    ((*RUN, "--partition", "hybird"), ("partition", "hybrid")),
    ((*RUN, "--partition", "labels(q=2)"), ("labels", "q")),
    ((*RUN, "--model", "mpl"), ("model", "mlp")),
    ((*RUN, "--model", "mlp(a)"), ("hidden sizes",)),
    ((*RUN, "--model", "cnn"), ("cnn needs images",)),
    ((*RUN, "--model", "linear"), ("10 classes", "softmax")),
    ((*RUN, "--model", "svm"), ("10 classes", "softmax")),
    ((*RUN, "--loss", "hinge"), ("hinge", "10 classes")),
    ((*RUN, "--loss", "squard"), ("loss", "squared")),
    ((*RUN, "--solver", "adm"), ("solver", "adam")),
    ((*RUN, "--solver", "exact"), ("exact solver needs",)),
    ((*RUN, "--solver", "adam", "--momentum", "0.9"), ("Adam", "momentum")),
    ((*RUN, "--aggregator", "medain"), ("aggregator", "median")),
    ((*RUN, "--aggregator", "krum(f=2, m=1)"), ("setting of krum", "'m'", "known: f")),
    ((*RUN, "--aggregator", "krum(f=many)"), ("krum's f", "many")),
    ((*RUN, "--aggregator", "krum(f=-1)"), ("Krum needs f >= 0; got -1",)),
    ((*RUN, "--aggregator", "krum(f=4)"), ("f = 4", "2f + 3 = 11", "got 10", "f <= 3")),
    ((*RUN, "--aggregator", "multi-krum(f=4)"), ("multi-Krum", "f = 4", "2f + 3 = 11", "got 10")),
    ((*RUN, "--aggregator", "multi-krum(keep=9)"), ("keep <= 7", "got 9")),
    ((*RUN, "--method", "fedavg", "--cohort", "5", "--aggregator", "krum(f=2)"), ("2f + 3 = 7", "got 5")),
    ((*RUN, "--method", "fedavg", "--cohort", "2", "--aggregator", "krum"), ("at least 3", "got 2")),
    ((*RUN, "--aggregator", "trimmed-mean(share=0.5)"), ("trims everything", "got 0.5")),
    ((*RUN, "--aggregator", "trimmed-mean(share=0.05)"), ("trims nobody of 10",)),
    ((*RUN, "--aggregator", "k-norm(k=10)"), ("k <= 9", "got 10")),
    ((*RUN, "--aggregator", "k-loss(k=10)"), ("k <= 9", "got 10")),
    ((*RUN, "--aggregator", "clipping(norm=0)"), ("norm > 0",)),
    ((*RUN, "--aggregator", "fedmgda(epsilon=2)"), ("epsilon in [0, 1]", "got 2")),
    ((*RUN, "--method", "fedamp", "--aggregator", "median"), ("fedamp takes no mean", "'median'", "fedavg")),
    ((*RUN, "--method", "local", "--aggregator", "krum(f=1)"), ("local takes no mean", "krum(f=1)")),
    ((*RUN, "--attack", "sign-flop"), ("attack", "sign-flip")),
    ((*RUN, "--attack", "sign-flip(size=2)"), ("setting of sign-flip", "size")),
    ((*RUN, "--attack", "sign-flip(std=0)"), ("std > 0",)),
    ((*RUN, "--attack", "gaussian(like=nobody)"), ("like", "lp-proj", "nobody")),
    ((*RUN, "--attack", "dirty-labels(share=1.5)"), ("share in (0, 1]", "1.5")),
    ((*RUN, "--attack", "sign-flip", "--attackers", "1"), ("[0, 1)", "got 1.0")),
    ((*RUN, "--attack", "sign-flip", "--attackers", "-0.1"), ("[0, 1)", "got -0.1")),
    ((*RUN, "--attack", "sign-flip", "--attackers", "nan"), ("[0, 1)", "got nan")),
    ((*RUN, "--attack", "sign-flip", "--attackers", "0.99"), ("10 clients is all of them",)),
    ((*RUN, "--attack", "sign-flip", "--attackers", "0.01"), ("10 clients is nobody", "0.05")),
    ((*RUN, "--drop", "1"), ("drop", "[0, 1)", "got 1.0")),
    ((*RUN, "--stragglers", "-1"), ("stragglers", "[0, 1)")),
    ((*RUN, "--stale", "keep"), ("stale", "discard", "keep")),
    ((*RUN, "--patience", "0"), ("patience", "at least 1")),
    ((*RUN, "--sampling", "luck"), ("sampling", "uniform")),
    ((*RUN, "--engine", "warp"), ("engine", "local")),
    ((*RUN, "--store", "dsk"), ("store", "disk")),
    ((*RUN, "--workers", "0"), ("at least 1 worker",)),
    ((*RUN, "--dtype", "float23"), ("dtype", "float32")),
    ((*RUN, "--set", "lamb=1"), ("setting of flame", "lam")),
    ((*RUN, "--set", "lam"), ("field=value",)),
    ((*RUN, "--set", "lam.x=1"), ("lam", "one value")),
    ((*RUN, "--set", "solver=adam"), ("solver.lr",)),
    ((*RUN, "--set", "solver.rate=1"), ("SGD", "rate")),
    ((*RUN, "--set", "lam=0"), ("FLAME needs lam > 0; got 0.0",)),
    ((*RUN, "--set", "lam=-2"), ("FLAME needs lam > 0; got -2.0",)),
    ((*RUN, "--set", "lam=nan"), ("FLAME needs lam > 0; got nan",)),
    ((*RUN, "--set", "lam=inf"), ("FLAME needs lam > 0; got inf",)),
    ((*RUN, "--set", "lam=much"), ("lam must be a number; got 'much'",)),
    ((*RUN, "--set", "rho=-1"), ("FLAME needs rho > 0; got -1.0",)),
    ((*RUN, "--set", "anchor=top"), ("anchor", "local", "top")),
    ((*RUN, "--method", "ditto", "--set", "joint=perhaps"), ("true or false", "perhaps")),
    ((*RUN, "--method", "pfedme", "--set", "R=1.5"), ("whole number", "1.5")),
    ((*RUN, "--method", "lp-proj-1", "--set", "p=0.5"), ("p >= 1", "0.5")),
    ((*RUN, "--method", "lp-proj-2", "--set", "d_sub=100000"), ("d_sub", "650")),
    ((*RUN, "--method", "flame-lp-proj", "--set", "d_sub=100000"), ("d_sub", "650")),
    ((*RUN, "--method", "local", "--set", "lam=1"), ("setting of local",)),
    ((*RUN, "--method", "mocha"), ("MOCHA", "convex", "ditto")),
    ((*RUN, "--method", "lg-fedavg"), ("LGFedAvg", "1 layer", "deeper")),
    ((*RUN, "--method", "fedrep"), ("FedRep", "1 layer", "deeper")),
    ((*RUN, "--method", "ditto", "--set", "global_method=fedpox"), ("method", "fedprox")),
    ((*RUN, "--method", "ditto", "--set", "global_method=local"), ("must train a global model",)),
    ((*RUN, "--method", "ditto", "--set", "global_method.mu=1"), ("needs a method's name", "global_method=fedprox")),
    ((*RUN, "--method", "mapper", "--set", "lambdas=0.5,two"), ("lambdas", "two")),
    ((*RUN, "--method", "mapper", "--set", "lambdas=0.5,2"), ("lambdas in [0, 1]",)),
    ((*RUN, "--method", "heurfedamp", "--set", "beta=1,two"), ("a number, or numbers with commas", "two")),
    ((*RUN, "--method", "heurfedamp", "--set", "self_weight=0.5,2"), ("self_weight in [0, 1]; got 2.0",)),
    ((*RUN, "--method", "heurfedamp", "--set", "beta=1,2"), ("one beta for all, or one for each of the", "got 2")),
    ((*RUN, "--lr", "0"), ("lr > 0",)),
    ((*RUN, "--batch", "0"), ("batch >= 1",)),
    ((*RUN, "--epochs", "0"), ("epochs >= 1",)),
    ((*RUN, "--rounds", "0"), ("rounds", "got 0")),
    ((*RUN, "--evaluate-every", "0"), ("evaluate_every",)),
    ((*RUN, "--cohort", "11"), ("cohort", "got 11")),
    ((*RUN, "--cohort", "0"), ("cohort", "got 0")),
    ((*RUN, "--clients", "0"), ("clients", "0")),
    ((*RUN, "--chunk", "0"), ("chunk", "0")),
    ((*RUN, "--seed", "-1"), ("seed", "-1")),
    ((*RUN, "--seed", "99999999999999999999"), ("seed",)),
    ((*RUN, "--partition", "labels=11"), ("11", "10")),
    ((*RUN, "--clients", "400"), ("400", "1797")),
    ((*RUN, "--partition", "natural"), ("key",)),
    ((*RUN, "--parts", "0.5,0.5"), ("parts", "three")),
    ((*RUN, "--parts", "0.5,0.5,0.5"), ("parts", "sum to 1")),
    ((*RUN, "--parts", "most,some,few"), ("parts", "numbers")),
    ((*RUN, "--batch", "99999999999999999999"), ("batch", "below 2147483648")),
    ((*RUN, "--steps", "99999999999999999999"), ("steps", "below 2147483648")),
    ((*RUN, "--clients", "99999999999999999999"), ("clients", "below 2147483648")),
    ((*RUN, "--workers", "99999"), ("workers", "below 1025")),
    ((*RUN, "--model", "mlp(60000,60000)"), ("3,604,440,000 weights", "at most 268,435,456")),
    ((*RUN, "--partition", "shards(k=99999999)"), ("99999999 shards", "1797 samples")),
    ((*RUN, "--data", "x" * 300 + ".csv"), ("cannot read", "File name too long")),
    ((*RUN, "--data", "y" * 300), ("cannot read", "File name too long")),
    ((*RUN, "--budget", "9" * 400), ("budget", "below 2^63")),
    ((*RUN, "--dp-noise", "1e300"), ("noise", "to 1e100", "got 1e+300")),
    ((*RUN, "--data", "b\udcffd.csv"), ("data is text", r"\udcff")),
    (("tune", *QUICK, "--methods", "flame", "--parts", "1"), ("validation data", "--parts")),
    (("compare", *QUICK, "--methods", "flame,dito"), ("method", "ditto")),
    (("compare", *QUICK, "--methods", "flame,flame"), ("twice",)),
    (("compare", *QUICK, "--methods", "flame", "--seeds", "0,0"), ("twice",)),
    (("compare", *QUICK, "--methods", "flame", "--seeds", "a"), ("seeds", "numbers")),
    (("compare", *QUICK, "--methods", "flame", "--set", "lam=1"), ("flame.lam=1.0",)),
    (("compare", *QUICK, "--methods", "flame", "--set", "ditto.lam=1"), ("ditto", "flame")),
    (("compare", *QUICK, "--methods", "flame", "--set", "flame.lam=0"), ("lam > 0",)),
    (("compare", *QUICK, "--methods", "flame,lp-proj-1", "--set", "lp-proj-1.d_sub=9999"), ("d_sub",)),
    (("compare", *QUICK, "--methods", "flame", "--cohort", "11"), ("cohort", "got 11")),
]


@pytest.mark.parametrize(("arguments", "words"), REQUESTS, ids=[ascii(" ".join(map(str, a)))[:80] for a, _ in REQUESTS])
def test_requests(arguments: tuple[object, ...], words: tuple[str, ...], tmp_path: Path) -> None:
    line = refused(*arguments, *(["--out", tmp_path / "a"] if arguments[0] in ("run", "compare") else []))
    assert all(word in line for word in words), line
    assert not (tmp_path / "a").exists()  # refused before any work


def _own(path: Path, *more: object) -> str:
    return refused(*RUN, "--data", path, *OWN, *more)


def test_a_missing_client_key_offers_the_nearest(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv")
    assert "hospital" in refused(*RUN, "--data", table, "--target", "outcome", "--client-key", "hospitl")
    assert "outcome" in refused(*RUN, "--data", table, "--target", "outcom", "--client-key", "hospital")
    assert "target" in refused(*RUN, "--data", table, "--client-key", "hospital")


@pytest.mark.parametrize("hole", ["", "nan", "inf"])
def test_holes_in_a_csv(hole: str, tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv")
    lines = table.read_text().splitlines()
    lines[3] = ",".join([hole, *lines[3].split(",")[1:]])
    table.write_text("\n".join(lines) + "\n")
    line = _own(table, "--columns", "raw")
    assert "visits.csv" in line and ("missing" in line or "NaN" in line)


def test_nan_in_an_npz(tmp_path: Path) -> None:
    x = np.ones((60, 3))
    x[5, 1] = np.nan
    np.savez(tmp_path / "own.npz", x=x, y=np.arange(60) % 2)
    assert "NaN" in refused(*RUN, "--data", tmp_path / "own.npz")


def test_an_npz_with_pickled_objects(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.ones((60, 3)), y=np.array([{}] * 60, dtype=object))
    assert "pickle" in refused(*RUN, "--data", tmp_path / "own.npz")


def test_an_npz_without_y(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.ones((60, 3)))
    assert "own.npz" in refused(*RUN, "--data", tmp_path / "own.npz")


def test_truncated_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.ones((60, 3)), y=np.arange(60) % 2)
    import pyarrow.csv
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.csv.read_csv(hospitals(tmp_path / "visits.csv")), tmp_path / "visits.parquet")
    for name in ("own.npz", "visits.parquet"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-40])
        line = refused(*RUN, "--data", path, "--target", "outcome" if "parquet" in name else "y")
        assert name in line and "truncated" in line


def test_too_few_samples_for_the_minimum(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv", each=4)
    assert "minimum" in _own(table) or "samples" in _own(table)


@pytest.mark.parametrize("key", ["", "hospitl"])
def test_a_client_key_that_is_no_column(key: str, tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv")
    line = refused(*RUN, "--data", table, "--target", "outcome", "--client-key", key)
    assert f"unknown column of visits.csv {key!r}" in line


@pytest.mark.parametrize("form", ["latin-1", "utf-16", "utf-32"])
@pytest.mark.parametrize("old", ["age", "A\n"])
def test_tables_in_other_encodings(form: str, old: str, tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv")
    table.write_bytes(table.read_text().replace(old, f"â{old}").encode(form))
    assert "is not a table in UTF-8; save it as CSV in UTF-8" in _own(table)


def test_a_table_in_utf8_with_a_mark_is_read(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv", names=("Â", "Ö", "B"))
    table.write_bytes(table.read_text().encode("utf-8-sig"))
    assert "Ö" in good(*RUN, "--data", table, *OWN).out


@pytest.mark.parametrize("value", ["x" * 20_000, "ab " * 10_000, "\x1b" * 20_000])
def test_a_long_value_is_not_repeated_in_full(value: str) -> None:
    line = refused(*RUN, "--method", value)
    assert len(line) < 1100 and " ... " in line and line.isprintable() and "unknown method" in line


@pytest.mark.parametrize(
    "command", [("report",), ("predict", "--data", "a.csv", "--run"), ("run", "--out"), ("watch",)]
)
def test_folders_with_names_that_no_system_has(command: tuple[str, ...]) -> None:
    assert "File name too long" in refused(*command, "x" * 5000)


def test_escape_sequences_are_shown_and_not_sent(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv", names=("\x1b[2Jgone", "\x07bell", "\u202eback"))
    text = good(*RUN, "--data", table, *OWN).out
    assert all(shown in text for shown in (r"\x1b[2Jgone", r"\x07bell", r"\u202eback"))
    assert not any(c in text for c in "\x1b\x07\u202e")
    assert r"unknown column of visits.csv '\x1b[2J'" in refused(*RUN, "--data", table, "--target", "\x1b[2J")


RECIPES = [
    ("lambda = 1\n", ("lambda", "recipe.toml")),
    ("round = 5\n", ("round", "rounds")),
    ('rounds = "ten"\n', ("rounds", "ten")),
    ("rounds = 2.5\n", ("rounds", "2.5")),
    ("method = 3\n", ("method", "3")),
    ('method = "flam"\n', ("method", "flame")),
    ('device = "moon"\n', ("device", "moon")),
    ('parts = [0.5, "x", 0.2]\n', ("parts", "x")),
    ('[settings]\nlam = "big"\n', ("lam", "big")),
    ('[settings]\naggregate = "medain"\n', ("aggregator", "median")),
    ('[settings.solver]\nkind = "sgdd"\n', ("solver", "sgd")),
    ("rounds = \n", ("TOML", "recipe.toml")),
    ("method = 2020-01-01\n", ("method is text", "datetime.date(2020, 1, 1)")),
    ("partition = 07:30:00\n", ("partition is text", "datetime.time(7, 30)")),
    ("solver = 2020-01-01\n", ("solver is a table", "datetime.date(2020, 1, 1)")),
    ("[method.solver]\nkind = []\n", ("unknown solver '[]'",)),
    ('method = "ditto"\n[settings]\nglobal_method = 3\n', ("unknown method '3'",)),
    ("rounds = 0x" + "f" * 8000 + "\n", ("TOML", "digits")),
    ("parts = " + "[" * 4000 + "]" * 4000 + "\n", ("TOML", "recursion")),
    ("rounds = 5\nrounds = 6\n", ("TOML", "recipe.toml")),
]


@pytest.mark.parametrize(("text", "words"), RECIPES, ids=[t.replace("\n", " ")[:60] for t, _ in RECIPES])
def test_recipes(text: str, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(text)
    line = refused("run", "--resume", tmp_path)
    assert all(word in line for word in words), line
    assert files(tmp_path) == {"recipe.toml": text.encode()}


def test_a_recipe_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_bytes(b"\xff\xfe\x00")
    assert "TOML" in refused("run", "--resume", tmp_path)


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    answer = sartor("run", "--method", "flam", "--debug")
    assert answer.code == 2 and "Traceback" in answer.err and answer.err.splitlines()[-1].startswith("sartor: ")


def test_a_refused_request_leaves_earlier_results(tmp_path: Path) -> None:
    good(*RUN, "--out", tmp_path, "--quiet")
    before = files(tmp_path)
    for arguments in (
        ("--resume", tmp_path, "--set", "lam=-1"),
        ("--resume", tmp_path, "--cohort", 99),
        ("--out", tmp_path, "--method", "flam"),
        ("--resume", tmp_path, "--rounds", 1),
    ):
        refused(*RUN[:1], *arguments)
    assert files(tmp_path) == before


def test_a_client_called_like_markup_is_printed_as_it_is(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv", names=("[red]", "[/b]", ":smile:"))
    text = good(*RUN, "--data", table, *OWN).out
    assert all(name in text for name in ("[red]", "[/b]", ":smile:"))


@pytest.mark.parametrize(
    ("option", "word", "says"),
    [
        ("--days", "0", "1 to 36500 days (--days); got 0"),
        ("--days", "-5", "1 to 36500 days (--days); got -5"),
        ("--days", "99999999", "1 to 36500 days"),
        ("--server", "fl..example.org:8002", "HOST:PORT"),
        ("--server", "fl.example.org.:8002", "HOST:PORT"),
        ("--server", "fl-.example.org:8002", "HOST:PORT"),
        ("--server", "fl.example.org:²", "HOST:PORT"),
        ("--server", "fl.example.org:" + "9" * 5000, "HOST:PORT"),
        ("--server", "x" * 64 + ":8002", "HOST:PORT"),
    ],
)
def test_kits_that_cannot_be_made(option: str, word: str, says: str, tmp_path: Path) -> None:
    given = {"--name": "demo", "--server": "fl.example.org:8002", "--sites": "a,b", "--out": tmp_path / "kits"}
    words = [w for pair in (given | {option: word}).items() for w in pair]
    assert says in refused("federation", "init", *words)
    assert not (tmp_path / "kits").exists()


@pytest.mark.parametrize("command", ["run", "compare"])
def test_states_on_disk_need_a_folder(command: str) -> None:
    assert "needs --out" in refused(command, "--store", "disk")
