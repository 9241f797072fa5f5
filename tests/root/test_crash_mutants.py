"""A link of crash trials that is broken on purpose is noticed by the controls."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_controls import Control, problem

from campaigning import environment, nothing_left, reachable, run_in_fork
from pgstrata.crash import job, ledger, program
from pgstrata.record.reader import read_crashes
from pgstrata.record.source import FolderSource

pytestmark = pytest.mark.skipif(
    not (Path(sys.executable).parent / "strata-disk").exists(), reason="strata-disk is not built: cargo is missing"
)

HOLDS = Control("ext4", loses=False)
LOSES = Control("ext4", loses=True, ignored_flushes="all")
STATES = 8

Patch = Callable[[pytest.MonkeyPatch, Path], None]


def nothing_broken(patch: pytest.MonkeyPatch, place: Path) -> None:
    """As it is."""


def mark_before_the_acknowledgement(patch: pytest.MonkeyPatch, place: Path) -> None:
    text = ledger._CLIENT.read_text(encoding="utf-8")
    transaction = "        tags = server.ask(transfer(session, number, given.accounts, lot))\n"
    mark = '        disk.mark(f"ack {session} {number}")\n'
    assert text.count(transaction) == text.count(mark) == 1
    client = place / "client.py"
    client.write_text(text.replace(mark, "").replace(transaction, mark + transaction), encoding="utf-8")
    patch.setattr(ledger, "_CLIENT", client)


def read_nothing(patch: pytest.MonkeyPatch, place: Path) -> None:
    patch.setattr(job, "render_check", lambda **_: "SELECT 'reached' AS end;\n")


def never_drop_a_write(patch: pytest.MonkeyPatch, place: Path) -> None:
    parse = program.parse_states

    def everything(text: str) -> tuple[program.ChosenState, ...]:
        lines = [json.loads(line) | {"chosen": {"whole": "everything"}} for line in text.splitlines()]
        return parse("\n".join(json.dumps(line) for line in lines))

    patch.setattr(program, "parse_states", everything)


@pytest.mark.parametrize(
    ("broken", "control", "noticed"),
    [
        (nothing_broken, LOSES, ""),
        (mark_before_the_acknowledgement, HOLDS, "must hold"),
        (read_nothing, HOLDS, "could not be looked at"),
        (never_drop_a_write, LOSES, "must lose"),
    ],
)
def test_a_broken_link_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Patch, control: Control, noticed: str
) -> None:
    with reachable(tmp_path) as place:
        broken(monkeypatch, place)
        words = ["--states", str(STATES), "--transactions", "8", "--ignore-flushes", control.ignored_flushes]
        argv = ["crash", control.stack, *words, "--out", str(place / "out"), "--scratch", str(place / "scratch")]
        code = run_in_fork([*argv, "--quiet"], environment(place), place / "printed")
        assert code == 0, (place / "printed").read_text()
        nothing_left(place)
        (found,) = read_crashes(FolderSource(place / "out"))
    assert (noticed in problem(control, found, STATES)) if noticed else not problem(control, found, STATES)
