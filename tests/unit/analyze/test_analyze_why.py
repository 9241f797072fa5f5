"""Where session time goes and what a difference comes from: each cause, and that nothing is named without evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.finding import Cause, TimeKind
from pgstrata.analyze.findings import Why
from pgstrata.analyze.why.account import cause_of, compare
from pgstrata.analyze.why.run import KINDS, Event, RunReading, kind_of, read_run
from pgstrata.record.parquet import write_series
from pgstrata.record.reader import CellData, read
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.lvm import Lvm
from pgstrata.spec.stack import Stack, Volume
from pgstrata_fake.campaigns import Shape, write_campaign

CLIENTS = 8
BASE: dict[TimeKind, float] = {"wal": 1.0, "files": 0.4, "locks": 0.3, "running": 0.8, "client": 0.5, "other": 0.0}
ON_PROCESSORS = {"server_cpu": 1.0, "server_cpu_wait": 4.0}
STARVED_CLIENT = {"client_cpu": 0.2, "client_cpu_wait": 0.6}
BUSY_CLIENT = {"client_cpu": 0.9, "client_cpu_wait": 0.1}


def readings(
    more: Mapping[TimeKind, float] | None = None,
    figures: Mapping[str, float] | None = None,
    *,
    blocks: int = 6,
    noise: float = 0.02,
    seed: int = 1,
) -> tuple[RunReading, ...]:
    """Runs with the times of BASE and so many ms more of some kinds, each kind with noise of its own."""
    rng = np.random.default_rng(seed)
    found = []
    for block in range(blocks):
        parts = {k: (BASE[k] + (more or {}).get(k, 0.0)) * float(np.exp(rng.normal(0, noise))) for k in KINDS}
        events: dict[Event, float] = {(kind, kind.title()): ms for kind, ms in parts.items()}
        found.append(RunReading(block, CLIENTS, sum(parts.values()), parts, events, dict(figures or {})))
    return tuple(found)


def why(slow: tuple[RunReading, ...], fast: tuple[RunReading, ...] | None = None) -> Why:
    (found,) = compare("c", [("fast", fast or readings(seed=2)), ("slow", slow)])
    return found


CASES: tuple[tuple[TimeKind, dict[str, float], Cause], ...] = (
    ("wal", {}, "storage"),
    ("files", {}, "storage"),
    ("locks", {}, "locks"),
    ("running", ON_PROCESSORS, "processor"),
    ("running", {"cpu_busy": 0.97}, "processor"),
    ("running", {}, "unexplained"),
    ("running", {"cpu_busy": 0.5}, "unexplained"),
    ("running", {"server_cpu": 0.4, "server_cpu_wait": 0.1, "cpu_busy": 0.97}, "unexplained"),
    ("client", STARVED_CLIENT, "processor"),
    ("client", {"server_cpu": 0.5, "server_cpu_wait": 6.5}, "processor"),
    ("client", {"server_cpu": 6.5, "server_cpu_wait": 0.5}, "client"),
    ("client", {"server_cpu": 0.5, "server_cpu_wait": 2.0}, "client"),
    ("client", BUSY_CLIENT, "client"),
    ("client", {}, "client"),
    ("other", {}, "unexplained"),
)


@pytest.mark.parametrize(("kind", "figures", "cause"), CASES)
def test_each_cause_is_named_with_its_evidence_alone(kind: TimeKind, figures: dict[str, float], cause: Cause) -> None:
    found = why(readings({kind: 3.0}, figures))
    assert (found.a, found.b, found.beyond_noise, found.cause) == ("slow", "fast", True, cause)
    first = found.parts[0]
    assert (first.kind, first.cause, first.beyond_noise) == (kind, cause, True)
    assert first.share == pytest.approx(1.0, abs=0.1)
    assert sum(part.difference_ms for part in found.parts) == pytest.approx(found.difference_ms, rel=0.01)


def test_times_and_shares_of_a_pair_are_of_the_blocks_of_both() -> None:
    slow = readings({"wal": 3.0}, blocks=4)
    found = why(slow, (*readings(blocks=4, seed=2), *(replace(r, block=r.block + 4, time_ms=9.0) for r in slow)))
    assert found.a_ms - found.b_ms == pytest.approx(found.difference_ms)
    assert found.b_ms < 4
    wal = found.parts[0]
    assert wal.a_share == pytest.approx(4 / 6, abs=0.03)
    assert wal.b_share == pytest.approx(1 / 3, abs=0.03)


def test_a_difference_within_the_noise_between_runs_has_no_cause() -> None:
    found = why(readings({"wal": 0.05}, noise=0.3), readings(noise=0.3, seed=2))
    assert not found.beyond_noise
    assert found.cause is None
    assert found.evidence == ()
    assert not any(part.beyond_noise for part in found.parts)


def scaled(runs: tuple[RunReading, ...], factors: list[float]) -> tuple[RunReading, ...]:
    return tuple(
        replace(run, time_ms=run.time_ms * f, parts={k: ms * f for k, ms in run.parts.items()})
        for run, f in zip(runs, factors, strict=True)
    )


def test_several_times_as_long_is_shown_though_it_scatters_in_ms() -> None:
    slow = scaled(readings(blocks=5), [1.9, 5.1, 2.2, 4.6, 2.4])
    found = why(slow, readings(blocks=5, seed=2))
    assert found.beyond_noise
    assert found.p < 0.01
    in_ms = [x.time_ms - y.time_ms for x, y in zip(slow, readings(blocks=5, seed=2), strict=True)]
    assert ttest_1samp(in_ms, 0).pvalue > 0.02


def test_logarithms_that_point_the_other_way_show_nothing() -> None:
    slow = scaled(readings(blocks=6, noise=0.0), [0.8, 0.8, 0.8, 0.8, 0.8, 4.0])
    found = why(slow, readings(blocks=6, noise=0.0))
    assert (found.a, found.beyond_noise) == ("slow", False)


def test_what_varies_more_than_it_differs_is_not_named() -> None:
    """Clearly slower, but in each run something else took the time."""
    slow = []
    kinds: tuple[TimeKind, ...] = ("wal", "files", "locks")
    for at, run in enumerate(readings()):
        parts = dict(run.parts)
        parts[kinds[at % 3]] += 3.0
        slow.append(replace(run, parts=parts, time_ms=run.time_ms + 3.0))
    found = why(tuple(slow))
    assert found.beyond_noise
    assert found.cause == "unexplained"


def test_no_single_cause_that_accounts_for_less_than_half() -> None:
    more: dict[TimeKind, float] = {"wal": 1.0, "locks": 1.1, "client": 1.2}
    found = why(readings(more))
    assert found.cause == "unexplained"
    assert [part.kind for part in found.parts[:3]] == ["client", "locks", "wal"]
    assert all(part.beyond_noise for part in found.parts[:3])


def test_both_sorts_of_storage_count_together() -> None:
    assert why(readings({"wal": 1.0, "files": 1.0, "locks": 1.2})).cause == "storage"


def test_the_slower_one_is_explained_even_if_it_is_ranked_first() -> None:
    (found,) = compare("c", [("first", readings({"wal": 2.0})), ("second", readings(seed=2))])
    assert (found.a, found.b, found.cause) == ("first", "second", "storage")


def test_blocks_that_both_have_are_compared_and_three_are_needed() -> None:
    slow = readings({"wal": 3.0})
    (found,) = compare("c", [("fast", readings(seed=2)[1:5]), ("slow", slow[2:])])
    assert found.pairs == 3
    assert list(compare("c", [("fast", readings(seed=2)[:4]), ("slow", slow[2:])])) == []


def test_the_error_rate_is_shared_among_all_tests_of_the_cell() -> None:
    """A difference that one test alone would call real is not, when many stacks are compared."""
    best, near = readings(seed=2, noise=0.1), readings({"wal": 0.4}, seed=3, noise=0.1)
    alone = why(near, best)
    others = [(f"s{n}", readings(seed=10 + n, noise=0.1)) for n in range(12)]
    crowd = next(w for w in compare("c", [("best", best), ("near", near), *others]) if "near" in (w.a, w.b))
    assert alone.p == crowd.p
    assert alone.tests < crowd.tests
    assert alone.beyond_noise
    assert not crowd.beyond_noise


def test_figures_beside_a_cause_must_differ() -> None:
    def figures(flushes: float) -> dict[str, float]:
        return {"flushes_per_transaction": flushes, "device_utilisation": 0.9}

    fast, slow = readings(figures=figures(1.4), seed=2), readings({"wal": 3.0}, figures(1.9))
    (shown,) = why(slow, fast).evidence
    assert shown.name == "flushes_per_transaction"
    assert (shown.a, shown.b) == pytest.approx((1.9, 1.4))
    assert why(readings({"wal": 3.0}), fast).evidence == ()


@pytest.mark.parametrize(
    ("type_", "event", "kind"),
    [
        ("IO", "WALSync", "wal"), ("IO", "WalSync", "wal"), ("IO", "WALWrite", "wal"), ("LWLock", "WALWrite", "wal"),
        ("LWLock", "WALWriteLock", "wal"), ("IO", "DataFileRead", "files"), ("IPC", "BufferIO", "files"),
        ("LWLock", "buffer_io", "files"), ("LWLock", "WALInsert", "locks"), ("Lock", "transactionid", "locks"),
        ("BufferPin", "BufferPin", "locks"), ("Buffer", "BufferCleanup", "locks"), ("Timeout", "SpinDelay", "locks"),
        ("Timeout", "PgSleep", "other"), ("CPU", "Running", "running"), ("Client", "ClientRead", "client"),
        ("IPC", "SyncRep", "other"), ("Extension", "Extension", "other"),
    ],
)  # fmt: skip
def test_kinds_of_wait_events(type_: str, event: str, kind: TimeKind) -> None:
    assert kind_of(type_, event) == kind


def test_a_kind_of_time_has_its_cause_by_the_runs_own_evidence() -> None:
    assert cause_of("running", readings(figures={"server_cpu": 0.5, "server_cpu_wait": 0.4})) == "unexplained"
    assert cause_of("running", readings(figures={"server_cpu": 0.7, "server_cpu_wait": 0.6})) == "processor"


# ---------------------------------------------------------------- from the record

SECONDS = 10


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Two stacks, four blocks; of one, sessions flush WAL, of the other one they wait for each other."""
    shape = Shape(stacks=("ext4", "xfs"), blocks=4, duration_s=SECONDS, incidents=False,
                  base_tps={"ext4": 1000.0, "xfs": 2000.0})  # fmt: skip
    directory = write_campaign(tmp_path / "c", shape)
    for run in read(directory).cells():
        slow = run.stack == "ext4"
        waits = [("IO", "WalSync", 5.0), ("Lock", "tuple", 1.0)] if slow else [("Lock", "tuple", 6.0)]
        write_run(directory / run.folder, waits)
    return directory


def write_run(folder: Path, waits: list[tuple[str, str, float]]) -> None:
    times = range(1, SECONDS + 1)
    # Samples from before and after the run do not belong to it.
    around = [(t, "CPU", "Running", 8.0) for t in (-1, SECONDS + 0.5, SECONDS + 5)]
    rows = [(t, *wait) for t in times for wait in waits]
    write_series(folder / "waits.parquet", "waits", [*around, *rows])
    counters = [
        {"t_s": t, "wal_syncs": 500.0 * t, "wal_writes": 800.0 * t} for t in (-1, *times, SECONDS + 0.5, SECONDS + 5)
    ]
    write_series(folder / "postgres.parquet", "postgres", counters)
    devices = [
        {"t_s": t, "device": device, "role": "data", "flushes_per_s": 300.0, "writes_per_s": 900.0,
         "write_bytes_per_s": size, "read_bytes_per_s": 0.0, "in_flight": 2.0, "utilisation": busy}
        for t in times for device, size, busy in (("7:0", 4e6, 0.9), ("7:1", 4e6, 0.8), ("9:0", 5e6, 0.7))
    ]  # fmt: skip
    write_series(folder / "devices.parquet", "devices", devices)


def of_stack(directory: Path, name: str) -> CellData:
    return next(run for run in read(directory).cells() if run.stack == name)


def test_times_of_a_run_add_up_to_clients_over_throughput(recorded: Path) -> None:
    run = of_stack(recorded, "ext4")
    found = read_run(run, Stack(name="ext4", data=Volume(fs=Ext4())))
    assert found is not None
    assert found.time_ms == pytest.approx(1000 * 8 / (run.result.tps or 0))
    assert sum(found.parts.values()) == pytest.approx(found.time_ms)
    assert {k: ms / found.time_ms for k, ms in found.parts.items() if ms} == pytest.approx(
        {"wal": 5 / 8, "locks": 1 / 8, "client": 2 / 8}
    )
    assert found.figures["wal_syncs_per_transaction"] == pytest.approx(500 / (run.result.tps or 0))


def test_bytes_and_flushes_by_layer(recorded: Path) -> None:
    run = of_stack(recorded, "ext4")
    plain = read_run(run, Stack(name="ext4", data=Volume(fs=Ext4())))
    layered = read_run(run, Stack(name="ext4", data=Volume(fs=Ext4(), layers=(Lvm(),))))
    assert plain is not None
    assert layered is not None
    tps, wal = run.result.tps or 0.0, run.result.wal_bytes or 0
    assert plain.figures["flushes_per_transaction"] == pytest.approx(900 / tps)
    assert layered.figures["flushes_per_transaction"] == pytest.approx(600 / tps)
    assert layered.figures["device_bytes_per_transaction"] == pytest.approx(8e6 / tps)
    assert layered.figures["filesystem_bytes_per_transaction"] == pytest.approx(5e6 / tps)
    assert layered.figures["device_over_filesystem"] == pytest.approx(8 / 5)
    per_transaction = wal / run.result.transactions
    assert layered.figures["filesystem_over_wal"] == pytest.approx(5e6 / tps / per_transaction)
    assert layered.figures["device_utilisation"] == pytest.approx(0.9)


def test_the_judge_tells_profiles_and_why(recorded: Path) -> None:
    findings = judge(read(recorded))
    profiles = {profile.name: profile for profile in findings.profiles}
    assert (profiles["ext4"].mostly, profiles["xfs"].mostly) == ("storage", "locks")
    assert profiles["ext4"].parts[0].events[0].name == "WalSync"
    assert profiles["ext4"].runs == 4
    (found,) = findings.whys
    assert (found.a, found.b, found.cause) == ("ext4", "xfs", "storage")
    assert found.difference_ms == pytest.approx(4.0, rel=0.2)


def test_nothing_is_said_where_sessions_were_not_recorded(tmp_path: Path) -> None:
    data = read(write_campaign(tmp_path / "c", Shape(stacks=("ext4", "xfs"), blocks=4, incidents=False)))
    for run in data.cells():
        (tmp_path / "c" / run.folder / "waits.parquet").unlink()
    run = next(data.cells())
    assert read_run(run, Stack(name="ext4", data=Volume(fs=Ext4()))) is None
