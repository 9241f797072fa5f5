"""Code names a filesystem or block layer in the modules of that kind and in the registries, and nowhere else.

Prose may: docstrings, comments and messages (text with a blank in it), where examples have to name something.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pgstrata
from pgstrata.spec.layers.registry import FILESYSTEMS, LAYERS

SOURCE = Path(pgstrata.__file__).parent
NAMES = sorted({model.name() for model in (*FILESYSTEMS, *LAYERS)} - {"dir", "imported", "server"})
"""`dir`, `imported` and `server` are words of English and of Python."""
POOLS = {"zfs", "zvol"}
"""Two kinds over one pool."""

REGISTRIES = {"spec/layers/registry.py", "stack/__init__.py"}
NO_LAYERS = {
    "spec/durability_class.py": "filesystems of others below a directory or a loop file, known to flush or not",
    "host/facts/block.py": "what a path of any machine lies on, in words",
    "host/facts/tools.py": "versions of programs, asked of a machine before a stack is known",
    "host/agent/occupancy.py": "filesystems of others that use a device, read from /proc and /sys",
    "host/agent/devices.py": "where any filesystem keeps copies of its superblock",
    "report/render.py": "md is Markdown",
    "cli/verbs/report.py": "md is Markdown",
    "lab/recipe.py": "packages and files of the image of lab machines",
    "lab/initrd.py": "the disk that a lab machine starts from",
    "lab/image.py": "how the image of lab machines is made",
    "crash/cluster_program.py": "memory for the copies of nodes, which is no part of a stack",
    "crash/place_client.py": "runs on the host by itself, and asks a filesystem's own tool where its chunks lie",
    "importers/pg_fs_benchmark.py": "names of stacks in others' results",
}
"""Modules that name filesystems without meaning a layer, each with the reason."""

_NAMED = re.compile(rf"(?<![a-z])({'|'.join(NAMES)})(?![a-z0-9])", re.IGNORECASE)


def _modules() -> list[Path]:
    return sorted(m for m in SOURCE.rglob("*.py") if m.relative_to(SOURCE).parts[0] != "studies")


def _texts(tree: ast.Module) -> Iterator[str]:
    """Identifiers, imported modules and strings of a module, an f-string as one; no docstrings, no prose."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.FunctionDef(name=text) | ast.ClassDef(name=text):
                yield text.replace("_", " ")
            case ast.ImportFrom(module=str(text)):
                yield text
            case ast.JoinedStr(values=values):
                text = "".join(str(v.value) for v in values if isinstance(v, ast.Constant))
                yield "" if " " in text else text
            case ast.Constant(value=str(text)) if id(node) not in inside and " " not in text.strip():
                yield text


def _own(module: Path) -> set[str]:
    """What a module may name: its own kind, which its name begins with (zfs.py, zfs_status.py), and kinds of that."""
    in_layers = module.parent in (SOURCE / "spec/layers", SOURCE / "stack/fs", SOURCE / "stack/block")
    return (POOLS if module.stem.split("_")[0] in POOLS else {module.stem.split("_")[0]}) if in_layers else set()


def _named(module: Path) -> set[str]:
    """Layers that a module names besides its own."""
    texts = _texts(ast.parse(module.read_text(encoding="utf-8")))
    return {match[0].lower() for text in texts for match in _NAMED.finditer(text)} - _own(module)


def test_only_its_own_module_names_a_layer() -> None:
    """Others ask the kind: spec.layers.kind and stack.kind say what may be asked."""
    named = {module.relative_to(SOURCE).as_posix(): _named(module) for module in _modules()}
    assert len(named) > 300
    assert {path: names for path, names in named.items() if names and path not in REGISTRIES | NO_LAYERS.keys()} == {}


def test_names_are_looked_for() -> None:
    assert NAMES == ["btrfs", "ext4", "luks", "lvm", "md", "nfs", "tmpfs", "xfs", "zfs", "zvol"]


def test_exceptions_are_needed() -> None:
    for path in NO_LAYERS:
        tree = ast.parse((SOURCE / path).read_text(encoding="utf-8"))
        assert any(_NAMED.search(text) for text in _texts(tree)), f"{path} names none any more"
