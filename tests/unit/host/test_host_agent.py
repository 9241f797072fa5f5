"""What must hold of the agent because its source runs elsewhere."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgstrata.host.agent import source, wire
from pgstrata.host.agent.files import Files
from pgstrata.host.agent.operations import OPERATIONS
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import command
from pgstrata.host.remote import PYTHON_WANTED

FOLDER = Path(source.__file__).parent
MODULES = [path for path in FOLDER.glob("*.py") if path.name != "__init__.py"]


def _imported(tree: ast.Module) -> set[str]:
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_modules_are_sent_and_need_nothing_but_an_old_python(path: Path) -> None:
    assert path.stem in source.MODULES
    tree = ast.parse(path.read_text(), feature_version=PYTHON_WANTED)
    for name in _imported(tree):
        own = name.startswith(f"{source.PACKAGE}.")
        assert own or name.split(".")[0] in sys.stdlib_module_names, name
        if own:
            before = source.MODULES[: source.MODULES.index(path.stem)]
            assert name.rsplit(".", 1)[1] in before, f"{path.stem} comes before {name}"


def test_the_bootstrap_survives_every_login_shell() -> None:
    assert not set(source.BOOTSTRAP) & set("!\\\n`$")
    assert source.BOOTSTRAP.count("'") % 2 == 0


def test_a_bundle_runs_in_a_bare_python_and_answers() -> None:
    requests = [
        {"id": 1, "op": "run", "args": {"argv": ["printf", "x"], "timeout_s": 10}},
        {"id": 2, "op": "no_such_operation", "args": {}},
        {"id": 3, "op": "read", "args": {"path": "/no/such/file"}},
        {"id": 4, "op": "read", "args": {"wrong": 1}},
    ]
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-u", "-c", source.BOOTSTRAP, "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(source.bundle() + b"".join(wire.encode(request) for request in requests))
    process.stdin.flush()
    lines = [process.stdout.readline() for _ in range(2 + len(requests))]
    process.stdin.close()
    assert process.wait(timeout=20) == 0
    process.stdout.close()
    assert lines[1].startswith(source.READY.encode())
    answers = {answer["id"]: answer for answer in map(wire.decode, lines[2:])}
    assert wire.result(answers[1])["stdout"] == b"x"
    with pytest.raises(wire.AgentError, match="no operation"):
        wire.result(answers[2])
    with pytest.raises(FileNotFoundError):
        wire.result(answers[3])
    with pytest.raises(wire.AgentError, match="TypeError"):
        wire.result(answers[4])


def test_operations_are_public_and_bytes_survive_the_wire() -> None:
    assert {"run", "start", "stop_marked", "try_lock", "remove"} <= OPERATIONS
    assert not [name for name in OPERATIONS if name.startswith("_")]
    data = bytes(range(256))
    assert wire.decode(wire.encode({"value": {"data": data}})) == {"value": {"data": data}}
    with pytest.raises(TypeError, match="cannot send set"):
        wire.encode({"value": {1}})


@pytest.mark.parametrize("planted", ["link", "folder"])
def test_a_folder_of_somebody_else_is_not_taken_over(tmp_path: Path, planted: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can hand folders over")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    place = theirs
    if planted == "link":
        place = tmp_path / "link"
        place.symlink_to(theirs)
    with pytest.raises(PermissionError, match="not taken over"):
        Files().make_directory(str(place), 0o700, "root")
    assert theirs.stat().st_uid == 12345


def test_a_strict_umask_closes_no_folder_that_the_server_must_reach(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        host = LocalHost(state_directory=str(tmp_path / "state"))
        host.make_directory(str(tmp_path / "a" / "b"), mode=0o700)
        host.run(command("mkdir", "--parents", str(tmp_path / "c" / "d")))
        assert host.try_lock("x", "") is None
        host.close()
    finally:
        os.umask(before)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b", "c", "c/d", "state")}
    assert modes == {"a": 0o755, "a/b": 0o700, "c": 0o755, "c/d": 0o755, "state": 0o755}


def test_a_tree_that_somebody_else_removes_meanwhile_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "machine"
    tree.mkdir()
    for name in ("a", "b", "c"):
        (tree / name).touch()
    unlink = os.unlink

    def unlink_after_others(path: str, **where: int) -> None:
        for entry in list(tree.iterdir()):
            unlink(entry)
        unlink(path, **where)

    monkeypatch.setattr("shutil.os.unlink", unlink_after_others)
    Files().remove(str(tree))
    assert not tree.exists()


def test_a_tree_that_cannot_be_removed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "machine" / "a").mkdir(parents=True)

    def refuse(path: str, **where: int) -> None:
        raise PermissionError(1, "not permitted", path)

    monkeypatch.setattr("shutil.os.rmdir", refuse)
    with pytest.raises(PermissionError):
        Files().remove(str(tmp_path / "machine"))
