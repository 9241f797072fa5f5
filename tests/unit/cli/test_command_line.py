"""The command line in the fake mode: verbs, exit codes, messages, JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import duckdb
import pytest

import pgstrata
from pgstrata.cli.main import app
from pgstrata.errors import PreflightError
from pgstrata.spec.campaign import Campaign
from typed import typed

pytestmark = pytest.mark.slow

VERBS = sorted(command.name or command.callback.__name__ for command in app.registered_commands if command.callback)
GROUPS = sorted(group.name or "" for group in app.registered_groups)
NEEDED = {"quick", "plan", "run", "crash", "status", "report", "export", "doctor", "clean", "schema", "simulate"}
NEEDED_GROUPS = {"import", "studies", "lab"}

CAMPAIGN = """\
name: small
stacks: [ext4, xfs, tmpfs]
workload: {scale: 1, clients: 2, duration: 5, warmup: 0}
runs: {blocks: 3}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished campaign in `out`."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "small.yaml").write_text(CAMPAIGN)
    done = typed("run", "small.yaml", "--out", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


class TestHelp:
    def test_every_verb_of_the_contract_is_there(self) -> None:
        assert set(VERBS) >= NEEDED
        assert set(GROUPS) >= NEEDED_GROUPS

    @pytest.mark.parametrize("verb", VERBS)
    def test_every_verb_has_an_example(self, verb: str, tmp_path: Path) -> None:
        shown = typed(verb, "--help", cwd=tmp_path)
        assert shown.returncode == 0
        assert f"Example: pgstrata {verb}" in " ".join(shown.stdout.split())

    def test_version(self) -> None:
        argv = [sys.executable, "-m", "pgstrata.cli.main", "--version"]
        shown = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
        assert shown.stdout == f"pgstrata {pgstrata.__version__}\n"

    @pytest.mark.parametrize("argv", [["--help"], ["quick", "--help"]])
    def test_help_loads_nothing_heavy(self, argv: list[str]) -> None:
        code = (
            "import sys, pgstrata.cli.main\n"
            "try: pgstrata.cli.main.main()\n"
            "except SystemExit: pass\n"
            "heavy = ('numpy', 'scipy', 'pyarrow', 'duckdb', 'altair', 'rich', 'jinja2', 'pgstrata.spec.campaign')\n"
            "print([name for name in heavy if name in sys.modules])\n"
            "print('pydantic' in sys.modules)"  # typer's own, for arguments
        )
        shown = subprocess.run(
            [sys.executable, "-c", code, *argv], capture_output=True, text=True, check=True, timeout=60
        )
        assert shown.stdout.splitlines()[-2:] == ["[]", str(len(argv) > 1)]

    def test_neither_scipy_nor_pyarrow_is_needed(self) -> None:
        code = (
            "import sys, pkgutil, pgstrata.cli\n"
            "for name in ('scipy', 'pyarrow', 'pyDOE3'): sys.modules[name] = None\n"
            "import pgstrata.cli.campaign_run, pgstrata.analyze.campaign.judge, pgstrata.record.frames\n"
            "for _, name, _ in pkgutil.iter_modules(pgstrata.analyze.stats.__path__, 'pgstrata.analyze.stats.'):\n"
            "    __import__(name)\n"
            "print(sum(name.startswith('pgstrata.analyze.stats.') for name in sys.modules))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) > 20


class TestRun:
    def test_ends_with_the_table_and_the_page(self, finished: Path) -> None:
        again = typed("run", "small.yaml", "--out", "out", cwd=finished)
        assert again.returncode == 0
        assert "ext4" in again.stdout
        assert again.stdout.rstrip().endswith("report: out/report.html")
        assert (finished / "out" / "report.html").stat().st_size > 10_000

    def test_progress_goes_to_stderr_and_json_to_stdout(self, tmp_path: Path) -> None:
        done = typed("quick", "ext4", "tmpfs", "--minutes", "30", "--out", "q", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["schema"] == "pgstrata.report/1"
        assert "block 1" in done.stderr
        assert "\x1b" not in done.stderr

    def test_a_mix_with_variables_and_another_protocol(self, tmp_path: Path) -> None:
        (tmp_path / "orders.sql").write_text("\\startpipeline\nSELECT :day, :n;\n\\endpipeline\n")
        argv = [
            "quick",
            "ext4",
            "tmpfs",
            "--script",
            "orders.sql@9",
            "--script",
            "select-only@1",
            "--define",
            "day=1",
            "--define",
            "n=2",
        ]
        grid = typed("quick", "ext4", "xfs", "--script", "select-only", "--script", "tpcb-like", cwd=tmp_path)
        assert grid.returncode == 2
        assert "--script select-only@1 --script tpcb-like@1" in grid.stderr
        refused = typed(*argv, "--out", "q", cwd=tmp_path)
        assert refused.returncode == 2
        assert "uses \\startpipeline, and the protocol simple has no pipelines" in refused.stderr
        assert not (tmp_path / "q").exists()
        done = typed(*argv, "--protocol", "extended", "--minutes", "30", "--out", "q", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["cells"][0]["script"] == "orders@9+select-only@1"
        scripts = found["stacks"][0]["scripts"]
        assert [(one["script"], one["weight"]) for one in scripts] == [("orders", 9), ("select-only", 1)]
        asked = json.loads((tmp_path / "q" / "campaign.json").read_text())["campaign"]["workload"]
        assert (asked["variables"], asked["protocol"]) == ({"day": "1", "n": "2"}, "extended")

    def test_quiet(self, tmp_path: Path) -> None:
        (tmp_path / "small.yaml").write_text(CAMPAIGN)
        assert typed("run", "small.yaml", "--quiet", cwd=tmp_path).stderr == ""
        assert (tmp_path / "out" / "small" / "campaign.json").is_file()

    def test_failed_trials_end_with_4(self, tmp_path: Path) -> None:
        (tmp_path / "f.yaml").write_text(CAMPAIGN.replace("[ext4, xfs, tmpfs]", "{ext4: , failing: {data: xfs}}"))
        done = typed("run", "f.yaml", "--out", "out", cwd=tmp_path)
        assert done.returncode == 4, done.stderr
        assert "made to fail by its name" in done.stdout

    def test_a_condition_that_holds_ends_with_5(self, finished: Path) -> None:
        holds = typed("report", "out", "--fail-on", "tps(ext4) < 0.95*tps(tmpfs)", cwd=finished)
        assert holds.returncode == 5, holds.stderr
        fails = typed("report", "out", "--fail-on", "tps(ext4) > tps(tmpfs)", cwd=finished)
        assert fails.returncode == 0
        wrong = typed("report", "out", "--fail-on", "tps(zfs) > 1", cwd=finished)
        assert wrong.returncode == 2
        assert "zfs" in wrong.stderr

    def test_another_campaign_is_refused(self, finished: Path) -> None:
        (finished / "other.yaml").write_text(CAMPAIGN.replace("small", "other"))
        done = typed("run", "other.yaml", "--out", "out", cwd=finished)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert "HINT: " in done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("argv", [["quick", "ext5"], ["quick"], ["run", "missing.yaml"], ["frobnicate"]])
    def test_usage_errors_end_with_2(self, argv: list[str], tmp_path: Path) -> None:
        done = typed(*argv, cwd=tmp_path)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


class TestStatus:
    def test_counts(self, finished: Path) -> None:
        value = json.loads(typed("status", "out", "--json", cwd=finished).stdout)
        assert value["stacks"]["ext4"]["ok"] == 3
        assert value["finished"] is True
        assert value["running"] is False
        assert "3 ok" in typed("status", "out", cwd=finished).stdout


class TestReport:
    @pytest.mark.parametrize(("form", "start"), [("json", "{"), ("md", "# "), ("csv", "stack,block,")])
    def test_texts_go_to_stdout(self, finished: Path, form: str, start: str) -> None:
        done = typed("report", "out", "--format", form, cwd=finished)
        assert done.returncode == 0
        assert done.stdout.startswith(start)

    def test_one_text_at_a_time(self, finished: Path) -> None:
        assert typed("report", "out", "--format", "json,md", cwd=finished).returncode == 2
        assert typed("report", "out", "--format", "docx", cwd=finished).returncode == 2

    def test_of_a_zip(self, finished: Path, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "out.zip", "w") as archive:
            for file in (finished / "out").rglob("*"):
                archive.write(file, file.relative_to(finished))
        packed = typed("report", str(tmp_path / "out.zip"), "--format", "json", cwd=tmp_path)
        plain = typed("report", "out", "--format", "json", cwd=finished)
        assert packed.stdout == plain.stdout != ""


class TestExport:
    def test_tables(self, finished: Path, tmp_path: Path) -> None:
        done = typed("export", "out", "--out", str(tmp_path / "tables"), "--json", cwd=finished)
        assert len(json.loads(done.stdout)["files"]) == 10
        assert (tmp_path / "tables" / "runs.csv").read_text().count("\n") == 10

    def test_python_api(self, finished: Path) -> None:
        frames = pgstrata.load(finished / "out")
        runs = frames.runs()
        assert runs.num_rows == 9
        assert set(runs.column("stack").to_pylist()) == {"ext4", "xfs", "tmpfs"}
        progress = frames.series("progress")  # noqa: F841 - DuckDB takes the tables of this function by name
        seconds = duckdb.sql("SELECT count(*) FROM progress WHERE stack = 'xfs'")
        assert seconds is not None
        assert seconds.fetchall() == [(15,)]

    def test_python_api_names_its_extra(self, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        frames = pgstrata.load(finished / "out")
        for table in (frames.runs, frames.trials, lambda: frames.series("progress")):
            with pytest.raises(PreflightError, match="a table in Python needs the package pyarrow") as refused:
                table()
            assert "pgstrata[arrow]" in (refused.value.hint or "")


class TestSchema:
    def test_is_json_schema(self, tmp_path: Path) -> None:
        value = json.loads(typed("schema", cwd=tmp_path).stdout)
        assert set(Campaign.model_fields) - {"tuning"} <= set(value["properties"])  # `tune` writes it, not people
