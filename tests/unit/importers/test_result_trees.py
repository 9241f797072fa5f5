"""Imports of the result trees of mmtests and lkp-tests. Layouts are theirs, figures made up."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from importing import imported, imported_from, only_cell
from pgstrata.errors import UsageError
from pgstrata.importers.pgbench_text import pgbench_runs

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def pgbench(tps: float = 1000.0, *, clients: int = 4, protocol: str = "simple") -> str:
    return (
        "pgbench (16.2)\nstarting vacuum...end.\n"
        f"transaction type: <builtin: TPC-B (sort of)>\nscaling factor: 50\nquery mode: {protocol}\n"
        f"number of clients: {clients}\nnumber of threads: 1\nmaximum number of tries: 1\nduration: 4 s\n"
        f"number of transactions actually processed: {round(4 * tps)}\nnumber of failed transactions: 0 (0.000%)\n"
        f"latency average = {1000 * clients / tps:.3f} ms\ninitial connection time = 4.100 ms\n"
        f"tps = {tps:.6f} (without initial connection time)\n"
    )


def aggregated(share: float = 1.0) -> str:
    return "".join(f"{1714644672 + s} {int(share * 1000)} 4000000 16000000000 900 52000\n" for s in range(5))


def write(top: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return top


def test_a_mix_of_scripts(tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "fixtures/pgbench/16-mix.out"
    (run,) = pgbench_runs(path, stack="xfs", traits={})
    assert run.script == "orders@9+report@1"
    assert [one["transactions"] for one in run.result["scripts"]] == [7163, 845]


class TestMmtests:
    def test_runs_are_stacks_and_iterations_runs(self, tmp_path: Path) -> None:
        top = write(
            tmp_path / "log",
            {
                f"6.8-{fs}/iter-{n}/pgbench/logs/pgbench-{clients}.log": pgbench(tps + n, clients=clients)
                for fs, tps in (("xfs", 1000.0), ("ext4", 900.0))
                for n in range(2)
                for clients in (1, 16)
            },
        )
        data = imported_from("mmtests", [str(top)], tmp_path / "out")
        assert sorted({(cell.stack, cell.cell.clients, cell.result.tps) for cell in data.cells()}) == [
            (f"6.8-{fs}", clients, tps + n)
            for fs, tps in (("ext4", 900.0), ("xfs", 1000.0))
            for clients in (1, 16)
            for n in range(2)
        ]
        assert {cell.cell.scale for cell in data.cells()} == {50}

    def test_the_log_by_the_second(self, tmp_path: Path) -> None:
        logs = "iter-0/pgbench/logs"
        top = write(
            tmp_path / "6.8-xfs",
            {f"{logs}/pgbench-4.log": pgbench(), f"{logs}/pgbench-transactions-4.log.gz": aggregated(),
             f"{logs}/pgbench-transactions-44.log.gz": "other", f"{logs}/pgbench-scale": "50\n"},
        )  # fmt: skip
        cell = only_cell(imported_from("mmtests", [str(top)], tmp_path / "out"))
        assert cell.table("progress")["tps"].tolist() == [1000.0] * 4
        assert cell.stack == "6.8-xfs"

    def test_the_log_of_one_thread_is_not_of_the_run(self, tmp_path: Path) -> None:
        top = write(tmp_path / "run", {"pgbench-4.log": pgbench(), "pgbench-transactions-4.log.gz": aggregated(0.5)})
        data = imported_from("mmtests", [f"xfs={top}"], tmp_path / "out")
        assert "of one thread of several" in data.campaign.note
        assert only_cell(data).result.tps == 1000.0

    @pytest.mark.parametrize(
        "name", ["iter-0/pgbench/logs/pgbench-raw-4", "pgbench-xfs/noprofile/default/pgbench-raw-4-1"]
    )
    def test_earlier_layouts(self, tmp_path: Path, name: str) -> None:
        data = imported_from("mmtests", [str(write(tmp_path / "xfs", {name: pgbench()}))], tmp_path / "out")
        assert (only_cell(data).stack, only_cell(data).result.tps) == ("xfs", 1000.0)

    def test_a_run_without_result_is_counted(self, tmp_path: Path) -> None:
        top = write(tmp_path / "x", {"iter-0/pgbench/logs/pgbench-4.log": "", "iter-1/pgbench-4.log": pgbench()})
        data = imported_from("mmtests", [str(top)], tmp_path / "out")
        assert data.record.rejected == {"run: pgbench printed no result": 1}

    def test_protocols_are_cells_of_their_own(self, tmp_path: Path) -> None:
        top = write(tmp_path / "x", {"iter-0/pgbench-4.log": pgbench(),
                                     "iter-1/pgbench-4.log": pgbench(protocol="prepared")})  # fmt: skip
        data = imported_from("mmtests", [str(top)], tmp_path / "out")
        assert len({cell.cell.script for cell in data.cells()}) == 2

    def test_damaged_and_foreign_trees(self, tmp_path: Path) -> None:
        whole = pgbench()
        cut = write(tmp_path / "cut", {"iter-0/pgbench-4.log": whole[: whole.index("latency")]})
        with pytest.raises(UsageError, match=r"pgbench-4\.log"):
            imported_from("mmtests", [str(cut)], tmp_path / "out")
        other = write(tmp_path / "other", {"iter-0/dbench4/logs/dbench-4.log": "Throughput 1 MB/sec\n"})
        with pytest.raises(UsageError, match="no output of mmtests' pgbench"):
            imported_from("mmtests", [str(other)], tmp_path / "out")

    def test_a_damaged_archive(self, tmp_path: Path) -> None:
        top = write(tmp_path / "x", {"iter-0/pgbench-4.log.gz": pgbench()})
        path = top / "iter-0" / "pgbench-4.log.gz"
        path.write_bytes(path.read_bytes()[:60])
        with pytest.raises(UsageError, match="cannot decompress"):
            imported_from("mmtests", [str(top)], tmp_path / "out")


def lkp_run(number: int, *, commit: str = COMMIT, machine: str = "lkp-a", parameters: str = "300s-50%") -> str:
    return f"result/pgbench/{parameters}/{machine}/debian-12/x86_64-rhel/gcc-12/{commit}/{number}"


def statistics(**changes: Any) -> str:
    return json.dumps(
        {"pgbench.tps": 990.0, "pgbench.tps_exclude_connect": 1000.0, "pgbench.latency_ms": 4.0,
         "pgbench.transactions": 4000} | {f"pgbench.{name}": value for name, value in changes.items()}
    )  # fmt: skip


class TestLkp:
    def test_the_output_of_pgbench_is_read_first(self, tmp_path: Path) -> None:
        top = write(tmp_path, {f"{lkp_run(0)}/pgbench.gz": pgbench(1234.5), f"{lkp_run(0)}/stats.json": statistics()})
        cell = only_cell(imported_from("lkp", [f"xfs={top}/result"], tmp_path / "out"))
        assert (cell.stack, cell.result.tps, cell.cell.clients) == ("xfs", 1234.5, 4)

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("stats.json", statistics()),
            ("pgbench.json", json.dumps({name: [value] for name, value in json.loads(statistics()).items()})),
        ],
    )
    def test_statistics(self, tmp_path: Path, name: str, text: str) -> None:
        result = only_cell(
            imported_from("lkp", [str(write(tmp_path, {f"{lkp_run(0)}/{name}": text}) / "result")], tmp_path / "out")
        ).result
        assert (result.tps, result.latency_avg_ms, result.transactions) == (1000.0, 4.0, 4000)

    def test_throughput_with_connections_is_another_measurement(self, tmp_path: Path) -> None:
        top = write(tmp_path, {f"{lkp_run(0)}/stats.json": statistics(),
                               f"{lkp_run(1)}/stats.json": statistics(tps_exclude_connect=None)})  # fmt: skip
        data = imported_from("lkp", [str(top / "result")], tmp_path / "out")
        assert sorted((cell.cell.script, cell.result.tps) for cell in data.cells()) == [
            ("pgbench", 1000.0), ("pgbench, throughput with the time to connect", 990.0)
        ]  # fmt: skip

    def test_the_axes_that_differ_name_the_stacks(self, tmp_path: Path) -> None:
        other = COMMIT[::-1]
        top = write(tmp_path, {f"{lkp_run(0)}/stats.json": statistics(),
                               f"{lkp_run(0, commit=other)}/stats.json": statistics()})  # fmt: skip
        data = imported_from("lkp", [str(top / "result")], tmp_path / "out")
        assert sorted(cell.stack for cell in data.cells()) == sorted([COMMIT, other])

    def test_parameters_make_cells(self, tmp_path: Path) -> None:
        top = write(tmp_path, {f"{lkp_run(0)}/stats.json": statistics(),
                               f"{lkp_run(0, parameters='60s-1')}/stats.json": statistics()})  # fmt: skip
        data = imported_from("lkp", [f"xfs={top}/result"], tmp_path / "out")
        assert sorted(cell.cell.script for cell in data.cells()) == ["pgbench, 300s-50%", "pgbench, 60s-1"]

    def test_a_matrix_without_its_runs(self, tmp_path: Path) -> None:
        place = lkp_run(0).removesuffix("/0")
        matrix = {
            "stats_source": [f"/{place}/{n}/stats.json" for n in range(3)],
            "pgbench.tps_exclude_connect": [1000.0, 1010.0, 0],
            "last_state.is_incomplete_run": [0, 0, 1],
        }
        top = write(tmp_path, {f"{place}/matrix.json": json.dumps(matrix)})
        data = imported_from("lkp", [str(top / "result")], tmp_path / "out")
        assert [cell.result.tps for cell in data.cells()] == [1000.0, 1010.0]
        assert data.record.rejected == {"run: lkp-tests calls the run incomplete": 1}

    def test_incomplete_runs(self, tmp_path: Path) -> None:
        top = write(tmp_path, {f"{lkp_run(0)}/pgbench": pgbench(), f"{lkp_run(1)}/pgbench": pgbench(),
                               f"{lkp_run(1)}/last_state": "is_incomplete_run: 1\n"})  # fmt: skip
        data = imported_from("lkp", [str(top / "result")], tmp_path / "out")
        assert data.record.rejected == {"run: lkp-tests calls the run incomplete": 1}
        assert len(list(data.cells())) == 1

    @pytest.mark.parametrize(
        ("files", "message"),
        [
            ({f"{lkp_run(0)}/stats.json": "{"}, "no whole statistics of lkp-tests"),
            ({f"{lkp_run(0)}/stats.json": "[]"}, "no statistics of lkp-tests"),
            ({f"{lkp_run(0)}/stats.json": "{}"}, "lkp-tests has no throughput of it"),
            ({lkp_run(0).replace("pgbench", "fio") + "/stats.json": "{}"}, "no pgbench run of lkp-tests"),
            ({"result/x": ""}, "no pgbench run of lkp-tests"),
        ],
    )
    def test_damaged_and_foreign_trees(self, tmp_path: Path, files: dict[str, str], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            imported_from("lkp", [str(write(tmp_path, files) / "result")], tmp_path / "out")


class TestFolders:
    def test_a_folder_within_another_counts_once(self, tmp_path: Path) -> None:
        top = write(tmp_path, {f"{lkp_run(0)}/stats.json": statistics()})
        with pytest.raises(UsageError, match=r"stats\.json is read twice"):
            imported_from("lkp", [f"a={top}/result", f"b={top}/result/pgbench"], tmp_path / "out")

    def test_the_folder_one_is_in(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(write(tmp_path / "6.8-xfs", {"iter-0/pgbench/logs/pgbench-4.log": pgbench()}))
        assert only_cell(imported_from("mmtests", ["."], tmp_path / "out")).stack == "6.8-xfs"

    def test_a_file_is_no_tree(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="is no folder, and a result of mmtests is a folder"):
            imported("mmtests", tmp_path, {"xfs=a.out": pgbench()})

    def test_a_tree_is_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="is a folder, and a result of go-tpc is a file"):
            imported_from("go-tpc", [str(tmp_path)], tmp_path / "out")
