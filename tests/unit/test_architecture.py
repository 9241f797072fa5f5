"""The rules of ARCHITECTURE.md, read off the source itself."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import pgstrata

SOURCE = Path(pgstrata.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
ONLINE = {"errors", "spec", "host", "stack", "postgres", "workload", "probe", "record"}

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "spec": {"errors"},
    "host": {"errors", "spec"},
    "stack": {"errors", "spec", "host"},
    "postgres": {"errors", "spec", "host", "stack"},
    "workload": {"errors", "spec", "host"},
    "probe": {"errors", "spec", "host"},
    "record": {"errors", "spec"},
    "trial": ONLINE,
    "crash": ONLINE | {"trial"},
    "fleet": ONLINE | {"trial"},
    "analyze": {"errors", "spec", "record"},
    "report": {"errors", "spec", "record", "analyze"},
    "watch": {"errors", "spec", "workload", "record", "analyze", "report"},
    "importers": {"errors", "spec", "workload", "record"},
    "studies": {"errors", "spec"},
    "lab": {"errors", "spec", "host"},
    "capture": {"errors", "spec", "host"},
    "doctor": ONLINE | {"lab"},
    "cli": ONLINE
    | {"trial", "crash", "fleet", "analyze", "report", "watch", "importers", "studies", "lab", "capture", "doctor"},
}

FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "manager"}
DRIVER_BLIND = {"trial", "report", "analyze"}
"""Packages that know no driver by its name."""
CLAUSES = {
    "As", "How", "It", "Of", "So", "That", "There", "They", "Those", "What", "Where", "Whether", "Which", "Who", "Why",
}  # fmt: skip
"""First words of docstrings that are neither a noun nor a verb."""
QUESTION = "Which storage stack"
"""The one that the program answers, which describes it."""
LONGEST_FUNCTION = 70
LONGEST_MODULE = 600

# Written out on other machines and never imported by what runs here: they keep to the standard library.
STANDALONE = {
    SOURCE / "postgres" / "settings_probe.py",
    SOURCE / "probe" / "reply_watcher.py",
    SOURCE / "probe" / "sampler.py",
    SOURCE / "probe" / "stale_reader.py",
    SOURCE / "stack" / "dead_server.py",
    SOURCE / "stack" / "relay.py",
    SOURCE / "stack" / "round_trip.py",
    SOURCE / "crash" / "cluster_worker.py",
    SOURCE / "crash" / "failover.py",
    SOURCE / "crash" / "ledger_client.py",
    SOURCE / "crash" / "place_client.py",
    SOURCE / "crash" / "rejoin.py",
    SOURCE / "crash" / "state_worker.py",
}


def package_of(module: Path) -> str:
    """`host` for host/agent.py, `errors` for errors.py, `pgstrata` for __init__.py."""
    parts = module.relative_to(SOURCE).with_suffix("").parts
    return "pgstrata" if parts == ("__init__",) else parts[0]


@cache
def tree_of(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"), str(module))


def imported(tree: ast.Module) -> Iterator[str]:
    """Every imported module, also those inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide which package is meant"
            yield node.module or ""
            if node.module == "pgstrata":
                yield from (f"pgstrata.{alias.name}" for alias in node.names)


def imports_what_it_must_not(module: Path) -> str:
    package = package_of(module)
    if package in ("pgstrata", "py"):
        return ""
    allowed = MAY_IMPORT[package] | {package, "__version__"}
    ours = {name.split(".")[1] for name in imported(tree_of(module)) if name.startswith("pgstrata.")}
    return f"{package} must not import {', '.join(sorted(ours - allowed))}" if ours - allowed else ""


def starts_processes(module: Path) -> str:
    """Only `host` may, and programs that run by themselves; nobody by a shell."""
    text = module.read_text(encoding="utf-8")
    may = package_of(module) == "host" or module in STANDALONE
    names = {name.split(".")[0] for name in imported(tree_of(module))}
    starts = "subprocess" in names or re.search(r"\bos\.(system|popen|exec[lv]|spawn|fork)", text)
    return "starts processes" if "shell=True" in text or (starts and not may) else ""


def is_too_long(module: Path) -> str:
    lines = len(module.read_text(encoding="utf-8").splitlines())
    return f"has {lines} lines" if lines > LONGEST_MODULE else ""


def has_long_functions(module: Path) -> str:
    functions = [n for n in ast.walk(tree_of(module)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = [(f.name, (f.end_lineno or f.lineno) - f.lineno + 1) for f in functions]
    return ", ".join(f"{name} has {length} lines" for name, length in lengths if length > LONGEST_FUNCTION)


def lacks_a_docstring(module: Path) -> str:
    return "" if ast.get_docstring(tree_of(module)) else "does not say what it does or what a package may import"


def begins_docstrings_with_clauses(module: Path) -> str:
    """Docstrings of modules, classes, functions, and those below fields and constants."""
    strings = [node.value for node in ast.walk(tree_of(module)) if isinstance(node, ast.Expr)]
    texts = [s.value.strip() for s in strings if isinstance(s, ast.Constant) and isinstance(s.value, str)]
    clauses = [text[:60] for text in texts if text.split(maxsplit=1)[0].strip(",.:") in CLAUSES]
    return "; ".join(text for text in clauses if not text.startswith(QUESTION))


def has_a_name_that_tells_nothing(module: Path) -> str:
    return ", ".join(set(module.relative_to(SOURCE).with_suffix("").parts) & FORBIDDEN_NAMES)


def names_a_driver(module: Path) -> str:
    """Programs and benchmarks that belong to a driver: run, judged and told is a load, whichever it is."""
    if package_of(module) not in DRIVER_BLIND:
        return ""
    return ", ".join(sorted(set(re.findall(r"pgbench|sysbench|go.?tpc|tpc.?c\b", module.read_text("utf-8"), re.I))))


RULES: list[Callable[[Path], str]] = [
    imports_what_it_must_not,
    starts_processes,
    is_too_long,
    has_long_functions,
    lacks_a_docstring,
    begins_docstrings_with_clauses,
    has_a_name_that_tells_nothing,
    names_a_driver,
]


@pytest.mark.xdist_group("source")  # a worker that has parsed all modules keeps them
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_module(rule: Callable[[Path], str]) -> None:
    problems = {module.relative_to(SOURCE).as_posix(): rule(module) for module in MODULES}
    assert len(problems) > 300
    assert {name: problem for name, problem in problems.items() if problem} == {}


def test_every_package_has_its_rule() -> None:
    packages = {package_of(m) for m in MODULES} - {"pgstrata"}
    assert packages == set(MAY_IMPORT) & packages
    assert {p.name for p in SOURCE.iterdir() if (p / "__init__.py").is_file()} <= set(MAY_IMPORT)


def test_architecture_names_every_package() -> None:
    text = (SOURCE.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for package in sorted({package_of(m) for m in MODULES} - {"pgstrata"}):
        assert f"`{package}`" in text, f"ARCHITECTURE.md does not name {package}"


def test_nothing_online_imports_what_is_offline() -> None:
    offline = {"analyze", "report", "importers", "studies", "watch"}
    for package in ONLINE | {"trial", "crash", "fleet"}:
        assert not MAY_IMPORT[package] & offline


def test_standalone_programs_use_the_standard_library_alone() -> None:
    for module in STANDALONE:
        assert not any(name.startswith("pgstrata") for name in imported(tree_of(module)))


def test_what_is_made_up_is_reached_from_one_place_and_not_installed() -> None:
    reached = [m for m in MODULES if any(name.split(".")[0] == "pgstrata_fake" for name in imported(tree_of(m)))]
    assert reached == [SOURCE / "trial" / "fake.py"]
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/pgstrata"]
