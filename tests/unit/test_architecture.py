"""The rules of ARCHITECTURE.md, read off the source itself."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
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


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.relative_to(SOURCE).as_posix())
class TestModule:
    def test_imports_only_what_its_package_may(self, module: Path) -> None:
        package = package_of(module)
        if package in ("pgstrata", "py"):
            return
        allowed = MAY_IMPORT[package] | {package, "__version__"}
        ours = {name.split(".")[1] for name in imported(tree_of(module)) if name.startswith("pgstrata.")}
        assert ours <= allowed, f"{package} must not import {', '.join(sorted(ours - allowed))}"

    def test_only_host_starts_processes(self, module: Path) -> None:
        names = {name.split(".")[0] for name in imported(tree_of(module))}
        if package_of(module) != "host" and module not in STANDALONE:
            assert "subprocess" not in names
            assert not re.search(r"\bos\.(system|popen|exec[lv]|spawn|fork)", module.read_text(encoding="utf-8"))
        assert "shell=True" not in module.read_text(encoding="utf-8")

    def test_is_not_too_long(self, module: Path) -> None:
        assert len(module.read_text(encoding="utf-8").splitlines()) <= LONGEST_MODULE

    def test_has_no_long_function(self, module: Path) -> None:
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                length = node.end_lineno - node.lineno + 1
                assert length <= LONGEST_FUNCTION, f"{node.name} has {length} lines"

    def test_opens_with_a_docstring(self, module: Path) -> None:
        assert ast.get_docstring(tree_of(module)), "says what it does and, for a package, what it may import"

    def test_has_a_telling_name(self, module: Path) -> None:
        assert not set(module.relative_to(SOURCE).with_suffix("").parts) & FORBIDDEN_NAMES


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
