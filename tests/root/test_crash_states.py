"""A failing state again: mounted, made small, and refused where it is another one."""

from __future__ import annotations

import gzip
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from campaigning import clean, environment, nothing_left, reachable, run_in_fork
from pgstrata.crash.place_client import files
from pgstrata.crash.reduction import without
from pgstrata.record.crash import StateRecord

DISK = Path(sys.executable).parent / "strata-disk"
pytestmark = pytest.mark.skipif(not DISK.exists(), reason="strata-disk is not built: cargo is missing")

STACK = "ext4@full_page_writes=off"
TRIAL = "crash/ext4-full_page_writes-off-0"
PAGE_BYTES, BLOCK_BYTES = 8192, 512
FIRST_OWN = 16384
MAGIC = (0x6A736677736872).to_bytes(8, "little")
"""Of dm-log-writes."""
FIRST_PAGES = 40
"""Of the table, which were full when the transactions began: no change of theirs writes them anew as a whole."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a crash trial of a stack that tears pages, on a disk that ignores all flushes, so that its log is
    kept for certain."""
    with reachable(tmp_path_factory.mktemp("states")) as folder:
        argv = ["crash", STACK, "--states", "6", "--transactions", "25", "--ignore-flushes", "all", "--nested", "0"]
        argv += ["--minimise", "0"]
        ended, printed = pgstrata(folder, *argv, "--out", str(folder / "out"), "--scratch", str(folder / "scratch"))
        assert ended == 0, printed
        nothing_left(folder)
        yield folder


def pgstrata(folder: Path, *argv: str) -> tuple[int, str]:
    """Exit code, and everything that was printed."""
    file = folder / f"printed-{len(list(folder.glob('printed-*')))}"
    code = run_in_fork(list(argv), environment(folder), file)
    return code, file.read_text()


def strata_disk(*argv: str | Path, given: str = "") -> list[Any]:
    done = subprocess.run([DISK, *argv], input=given, capture_output=True, text=True, check=True, timeout=120)
    return [json.loads(line) for line in done.stdout.splitlines()]


def mounted(folder: Path) -> list[str]:
    """What stands below the folder of mounts."""
    root = f"{folder}/state/mount/"
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if point.startswith(root)]


def add_state(trial: Path, state: dict[str, Any], verdict: str, reason: str) -> str:
    """A state of the trial's log as if the trial had looked at it."""
    raw = trial / "raw"
    log = raw.parent / "events.log"
    log.write_bytes(gzip.decompress((raw / "events.log.gz").read_bytes()))
    (made,) = strata_disk("measure", log, given=json.dumps(state) + "\n")
    log.unlink()
    (raw / "states" / f"9.{made['id']}.json").write_text(json.dumps(made) + "\n")
    record = StateRecord(
        id=f"9.{made['id']}", cut=made["cut"], how=made["how"], volatile=made["volatile"], kept=made["kept"],
        digest=made["digest"], acknowledged=0, verdict=verdict, reason=reason,
    )  # fmt: skip
    with (trial / "states.jsonl").open("a") as file:
        file.write(record.model_dump_json() + "\n")
    return record.id


def account_file(data_directory: Path) -> str:
    """The largest file of a relation that initdb did not make: the table of accounts."""
    made = (path for path in data_directory.glob("base/*/*") if path.name.isdigit() and int(path.name) >= FIRST_OWN)
    return str(max(made, key=lambda path: path.stat().st_size).relative_to(data_directory))


def some_state(trial: Path) -> dict[str, Any]:
    return dict(json.loads(sorted((trial / "raw" / "states").glob("1.*[0-9].json"))[0].read_text()))


def torn_page(trial: Path, places: list[tuple[int, int, int]]) -> dict[str, Any]:
    """A state that has everything, but pages of the table have only their first block of one write."""
    log = trial / "events.log"
    log.write_bytes(gzip.decompress((trial / "raw" / "events.log.gz").read_bytes()))
    events = strata_disk("events", log)
    log.unlink()
    begun = next(event["seq"] for event in events if event["event"] == "mark" and event["text"] == "begin")
    starts = [
        address + page - first
        for first, address, length in places
        for page in range(0, FIRST_PAGES * PAGE_BYTES, PAGE_BYTES)
        if first <= page and page + PAGE_BYTES <= first + length
    ]
    inside = {
        event["seq"]: [at // BLOCK_BYTES for at in starts if is_in(at, event)]
        for event in events
        if event["event"] == "write" and event["seq"] > begun
    }
    seq = max(inside, key=lambda seq: len(inside[seq]))  # of one page, the change may lie in the first block alone
    assert inside[seq], "no page of the table was written while there were transactions"
    write = next(event for event in events if event["seq"] == seq)
    done = next(event["seq"] for event in events if event["event"] == "completed" and event["of"] == seq)
    whole = (write["offset"] // BLOCK_BYTES, (write["offset"] + write["length"]) // BLOCK_BYTES)
    kept = without([whole], [(page + 1, page + PAGE_BYTES // BLOCK_BYTES) for page in inside[seq]])
    chosen = {"whole": "everything", "torn": [{"seq": seq, "blocks": kept}]}
    return {**some_state(trial), "id": 1, "cut": done, "chosen": chosen, "how": "made by hand"}


def is_in(page: int, write: dict[str, Any]) -> bool:
    return bool(write["offset"] <= page and page + PAGE_BYTES <= write["offset"] + write["length"])


def test_a_failing_state_is_mounted_until_it_is_cleaned_up(place: Path) -> None:
    name = f"{place}/out/{TRIAL}/1.{some_state(place / 'out' / TRIAL)['id']}"
    code, printed = pgstrata(place, "crash", "replay", name, "--scratch", str(place / "scratch"))
    assert code == 0, printed
    (point,) = mounted(place)
    assert f"mounted at {point}" in printed
    assert (Path(point) / "pgdata" / "PG_VERSION").is_file()
    assert clean(place) == 0
    assert mounted(place) == []
    nothing_left(place)


def test_a_state_of_another_choice_is_refused_and_leaves_nothing(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "out", tmp_path / "out")
    trial = tmp_path / "out" / TRIAL
    state = some_state(trial)
    name = f"{tmp_path}/out/{TRIAL}/1.{state['id']}"
    wrote, printed = pgstrata(place, "crash", "replay", name, "--export", str(tmp_path / "state.dm"))
    assert wrote == 0, printed
    assert (tmp_path / "state.dm").read_bytes()[:8] == MAGIC
    whole = "nothing" if state["chosen"]["whole"] == "everything" else "everything"
    (trial / "raw" / "states" / f"1.{state['id']}.json").write_text(
        json.dumps({**state, "chosen": {"whole": whole}}) + "\n"
    )
    for words in (("--scratch", str(place / "scratch")), ("--export", str(tmp_path / "other.dm"))):
        code, printed = pgstrata(place, "crash", "replay", name, *words)
        assert code == 3, printed
        assert "is another state than the one that was recorded" in printed
    assert not (tmp_path / "other.dm").exists()
    nothing_left(place)


def test_a_torn_page_comes_down_to_a_few_blocks_of_its_table(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "out", tmp_path / "out")
    trial = tmp_path / "out" / TRIAL
    everything = add_state(
        trial, {**some_state(trial), "chosen": {"whole": "everything"}, "id": 2}, "lost", "made by hand"
    )
    code, printed = pgstrata(
        place, "crash", "replay", f"{tmp_path}/out/{TRIAL}/{everything}", "--scratch", str(place / "scratch")
    )
    assert code == 0, printed
    (point,) = mounted(place)
    printed_commands = {line.partition(": ")[0]: shlex.split(line.partition(": ")[2]) for line in printed.splitlines()}
    subprocess.run(printed_commands["or start its server"], check=True, timeout=120, stdout=subprocess.DEVNULL)
    query = [*printed_commands["and look at it"], "-Atc", "SELECT count(*) FROM ledger.entry"]
    assert int(subprocess.run(query, check=True, timeout=120, capture_output=True, text=True).stdout) > 0
    found = {path: parts for path, parts in files(point) if path.startswith("pgdata/base/")}
    account = account_file(Path(point) / "pgdata")
    assert clean(place) == 0
    torn = torn_page(trial, found[f"pgdata/{account}"])
    for number, severity in enumerate(("FATAL", "ERROR")):  # whether recovery reads the page, or the look after it
        reason = f"{severity}:  invalid page in block 3 of relation base/5/16385"
        name = add_state(trial, {**torn, "id": number}, "corrupt", reason)
        words = ("--json", "--quiet", "--scratch", str(place / "scratch"), "--out", str(tmp_path / "one.zip"))
        code, printed = pgstrata(place, "crash", "minimise", f"{tmp_path}/out/{TRIAL}/{name}", *words)
        if code == 0:
            break
        assert "does not fail in the same way" in printed
    assert code == 0, printed
    small = json.loads(printed[printed.index("{") :])
    assert small["proven"]
    assert sum(part["length_bytes"] for part in small["places"]) <= 5 * BLOCK_BYTES
    assert {(part["file"], part["relation"]) for part in small["places"]} == {(account, "ledger.account")}
    nothing_left(place)
    code, printed = pgstrata(place, "crash", "replay", str(tmp_path / "one.zip"), "--scratch", str(place / "scratch"))
    assert code == 0, printed
    assert clean(place) == 0
