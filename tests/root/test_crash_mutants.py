"""A link of crash trials that is broken on purpose is noticed by the controls."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crash_controls import Control, problem

from campaigning import environment, nothing_left, reachable, run_in_fork
from crashed import read_crashes
from pgstrata.crash import job, ledger, program
from pgstrata.record.crash import CrashRecord
from pgstrata.record.source import FolderSource

pytestmark = pytest.mark.skipif(
    not (Path(sys.executable).parent / "strata-disk").exists(), reason="strata-disk is not built: cargo is missing"
)

HOLDS = Control("ext4", loses=False)
LOSES = Control("ext4", loses=True, ignored_flushes="all")
STATES = 8

Patch = Callable[[pytest.MonkeyPatch, Path], None]
State = dict[str, Any]


def nothing_broken(patch: pytest.MonkeyPatch, place: Path) -> None:
    """As it is."""


def mark_before_the_acknowledgement(patch: pytest.MonkeyPatch, place: Path) -> None:
    transaction = "        tags = [tag for query in queries for tag in server.ask(query)]\n"
    mark = "        disk.mark(acknowledgement(session, number, time.monotonic()))\n"
    change_the_client(patch, place, {mark: "", transaction: mark + transaction})


def change_the_client(patch: pytest.MonkeyPatch, place: Path, changes: Mapping[str, str]) -> None:
    text = ledger._CLIENT.read_text(encoding="utf-8")
    for before, after in changes.items():
        assert text.count(before) == 1
        text = text.replace(before, after)
    client = place / "client.py"
    client.write_text(text, encoding="utf-8")
    patch.setattr(ledger, "_CLIENT", client)


def forget_a_row_of_history(patch: pytest.MonkeyPatch, place: Path) -> None:
    """The third transaction of each session leaves no row of history, though it is acknowledged."""
    last = '        "END;\\n"\n'
    forget = """        f"DELETE FROM pgbench_history WHERE filler = '{session} 3';\\n"\n"""
    change_the_client(patch, place, {last: forget + last})


def write_a_row_of_history_twice(patch: pytest.MonkeyPatch, place: Path) -> None:
    """Both move nothing: no sum tells it."""
    last = '        "END;\\n"\n'
    again = """        f"INSERT INTO pgbench_history VALUES (1, 1, 1, 0, now(), '{session} {number}');\\n"\n"""
    change_the_client(patch, place, {last: again + last})


def read_nothing(patch: pytest.MonkeyPatch, place: Path) -> None:
    patch.setattr(job, "render_check", lambda *_: "SELECT 'reached' AS end;\n")


def leave_amcheck_out(patch: pytest.MonkeyPatch, place: Path) -> None:
    """The verdict still needs its answers."""
    patch.setattr(job, "render_check", lambda *_: ledger.render_check(()))


def change_the_states(patch: pytest.MonkeyPatch, change: Callable[[list[State]], list[State]]) -> None:
    """What the workers are told; what the record says of a state stays."""
    parse = program.parse_states

    def changed(text: str) -> tuple[program.ChosenState, ...]:
        states = parse(text)
        lines = change([json.loads(state.line) for state in states])
        return tuple(replace(state, line=json.dumps(line)) for state, line in zip(states, lines, strict=True))

    patch.setattr(program, "parse_states", changed)


def never_drop_a_write(patch: pytest.MonkeyPatch, place: Path) -> None:
    kept = {"chosen": {"whole": "everything"}, "digest": ""}
    change_the_states(patch, lambda states: [state | kept for state in states])


def choose_by_another_seed(patch: pytest.MonkeyPatch, place: Path) -> None:
    """Each state has the cut and the choice of the next one."""
    of_next = ("cut", "chosen")
    change_the_states(
        patch,
        lambda states: [
            state | {name: other[name] for name in of_next}
            for state, other in zip(states, states[1:] + states[:1], strict=True)
        ],
    )


@pytest.mark.parametrize(
    ("broken", "control", "noticed"),
    [
        (nothing_broken, LOSES, ""),
        (mark_before_the_acknowledgement, HOLDS, "must hold"),
        (read_nothing, HOLDS, "could not be looked at"),
        pytest.param(
            leave_amcheck_out,
            HOLDS,
            "could not be looked at",
            marks=pytest.mark.skipif(
                not any(Path("/usr/share/postgresql").glob("*/extension/amcheck.control")), reason="no amcheck"
            ),
        ),
        (never_drop_a_write, LOSES, "must lose"),
        (choose_by_another_seed, HOLDS, "could not be looked at"),
    ],
)
def test_a_broken_link_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Patch, control: Control, noticed: str
) -> None:
    with reachable(tmp_path) as place:
        broken(monkeypatch, place)
        found = recorded(place, control)
    assert (noticed in problem(control, found, STATES)) if noticed else not problem(control, found, STATES)


def recorded(place: Path, control: Control, *more: str) -> CrashRecord:
    words = ["--states", str(STATES), "--transactions", "8", "--ignore-flushes", control.ignored_flushes, *more]
    argv = ["crash", control.stack, *words, "--out", str(place / "out"), "--scratch", str(place / "scratch")]
    code = run_in_fork([*argv, "--quiet"], environment(place), place / "printed")
    nothing_left(place)
    (found,) = read_crashes(FolderSource(place / "out"))
    unknown = found.verdict == "unknown" or bool(found.unknown or found.missing)
    assert code == (4 if unknown else 0), (place / "printed").read_text()
    return found


@pytest.mark.parametrize(
    ("broken", "verdict", "words"),
    [
        (mark_before_the_acknowledgement, "lost", "acknowledged transactions are not there"),
        (forget_a_row_of_history, "corrupt", "history"),
        (write_a_row_of_history_twice, "corrupt", "twice"),
    ],
)
def test_what_is_wrong_with_pgbench_s_script_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Patch, verdict: str, words: str
) -> None:
    with reachable(tmp_path) as place:
        broken(monkeypatch, place)
        found = recorded(place, HOLDS, "--script", "tpcb-like", "--nested", "0", "--minimise", "0")
    assert "must hold" in problem(HOLDS, found, STATES)
    assert found.verdict == verdict
    assert words in (found.first_counterexample or "")
