"""Imports run one way. This test reads them and fails when a layer is crossed."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "sartor"

# What each part may import of the package. A folder's modules may import each other.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "seeds": set(),
    "threads": set(),
    "core": set(),
    "couplings": {"core", "errors", "seeds"},
    "solvers": {"core", "couplings", "errors"},
    "aggregators": {"core", "errors"},
    "diagnostics": {"core", "couplings", "seeds", "solvers"},
    "attention": set(),
    "rows": {"core", "errors"},
    "views": {"core", "errors"},
    "blocks": {"core", "errors"},
    "methods": {
        "attention",
        "rows",
        "core",
        "errors",
        "seeds",
        "couplings",
        "solvers",
        "aggregators",
        "diagnostics",
        "views",
        "blocks",
        "last_messages",
    },
    "last_messages": {"aggregators", "core", "rows"},
    "dynamic": {"core", "errors", "rows"},
    "data": {"core", "errors", "seeds"},
    "layers": {"errors"},
    "dense": {"core"},
    "models": {"errors"},
    "tasks": {"compiled", "core", "errors", "layers", "dense", "pooling", "traced"},
    "federation": {"core", "errors", "storage"},
    "engines": {
        *("compiled", "core", "errors", "federation", "seeds", "data", "linear", "rows", "storage", "threads"),
        "__init__",
    },
    "linear": {"compiled"},
    "compiled": set(),
    "pooling": {"compiled"},
    "traced": set(),
    "storage": {"core", "errors"},
    "judge": {"core", "errors", "seeds"},
    "failures": {"core", "errors", "seeds"},
    "compressors": {"core", "couplings", "errors", "seeds"},
    "traffic": {"core", "errors"},
    "wrappers": {"aggregators", "compressors", "core", "data", "errors", "rows", "seeds", "traffic"},
    "rounds": {"core", "errors", "failures", "seeds", "judge", "rows", "storage", "threads", "traffic"},
    "accounting": {"core", "errors", "rounds", "wrappers"},
    "newcomers": {"core", "data", "engines", "errors", "rounds", "seeds", "wrappers"},
    "export": {"data", "errors", "models", "storage"},
    "result": {
        *("accounting", "export", "models", "newcomers", "core", "errors", "data", "judge", "rounds", "storage"),
        *("tasks", "wrappers"),
    },
    "settings": {"compressors", "core", "data", "dynamic", "errors", "methods", "solvers", "aggregators", "wrappers"},
    "room": {"core", "data", "errors", "rows"},
    "estimate": {"data", "recipe", "room", "rounds"},
    "trackers": {"errors", "storage"},
    "fit": {
        "accounting",
        "aggregators",
        "compressors",
        "core",
        "errors",
        "data",
        "engines",
        "failures",
        "result",
        "room",
        "rounds",
        "settings",
        "tasks",
        "threads",
        "trackers",
        "traffic",
        "wrappers",
    },
    "recipe": {
        *(
            "accounting",
            "compressors",
            "data",
            "errors",
            "failures",
            "fit",
            "models",
            "newcomers",
            "result",
            "settings",
        ),
        *("storage", "tasks", "traffic", "wrappers"),
    },
    "grid": {"errors"},
    "compare": {
        *(
            "core",
            "data",
            "errors",
            "fit",
            "grid",
            "judge",
            "recipe",
            "result",
            "rounds",
            "settings",
            "storage",
            "traffic",
        ),
    },
    "predict": {"compare", "core", "data", "errors", "export", "models", "recipe", "result", "storage", "tasks"},
    "estimators": {"core", "data", "errors", "export", "fit", "models", "settings"},
    "testing": {"core", "data", "engines", "errors", "fit", "models", "rounds", "rows", "tasks", "wrappers"},
    "advise": {"compare", "data", "errors", "judge", "recipe", "storage", "tune"},
    "verdict": {"compare", "judge"},
    "reproduce": {
        *("compare", "data", "errors", "judge", "methods", "models", "recipe", "report", "result", "settings"),
        *("storage",),
    },
    "tune": {"compare", "data", "errors", "judge", "methods", "recipe", "seeds", "settings", "storage"},
    "catalogue": {
        *("aggregators", "compressors", "data", "errors", "methods", "models", "reproduce", "solvers", "tasks"),
        *("wrappers",),
    },
    "doctor": {"data", "errors", "__init__"},
    "theory": {
        "attention",
        "core",
        "couplings",
        "data",
        "diagnostics",
        "engines",
        "errors",
        "methods",
        "report",
        "rounds",
        "rows",
        "seeds",
        "settings",
        "solvers",
        "storage",
        "tasks",
        "wrappers",
    },
    "deploy": {
        *("core", "errors", "data", "storage", "federation", "engines", "recipe", "result", "compare", "__init__"),
    },
    "report": {"compare", "data", "grid", "errors", "recipe", "storage", "traffic"},
}
ABOVE_ALL = {"cli", "__init__"}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The parts of the package that a file imports."""
    inside = path.relative_to(PACKAGE).parts[:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("sartor.")}
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level == 0:
            module = (node.module or "").split(".")
            names = module[1:] if module[0] == "sartor" else None
        else:
            names = [*inside[: len(inside) - node.level + 1], *((node.module or "").split(".") if node.module else [])]
        if names is None:
            continue
        modules = {p.stem for p in PACKAGE.iterdir()}
        found |= {names[0]} if names else {a.name if a.name in modules else "__init__" for a in node.names}
    return found


def test_no_layer_is_crossed() -> None:
    crossed = []
    for path in sorted(PACKAGE.rglob("*.py")):
        part = part_of(path)
        if part in ABOVE_ALL:
            continue
        assert part in ALLOWED, f"{path.name}: say in this test what {part} may import"
        crossed += [f"{path.relative_to(PACKAGE)} imports {name}" for name in imports(path) - ALLOWED[part] - {part}]
    assert crossed == []


def test_the_rules_have_no_cycle() -> None:
    done: set[str] = set()
    while remaining := {p for p in ALLOWED if p not in done}:
        ready = {p for p in remaining if ALLOWED[p] - {"__init__"} <= done}
        assert ready, f"a cycle among {sorted(remaining)}"
        done |= ready


def test_methods_and_engines_do_not_know_each_other() -> None:
    assert "engines" not in ALLOWED["methods"] and "methods" not in ALLOWED["engines"]
