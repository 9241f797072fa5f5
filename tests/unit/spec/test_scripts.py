"""Scripts and mixes of them: notation, names, faults, and the meta commands that they use."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pgstrata.errors import UsageError
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.file.files import commands_of, resolve_scripts
from pgstrata.spec.scripts import Script, meta_commands, mix_fault, parse_scripts, render_scripts
from pgstrata.spec.workload import Cell, Workload, parse_definitions

MIX = "tpcb-like@9+select-only@1"


def cell(script: str) -> Cell:
    return Cell(script=script, scale=50, clients=8)


@pytest.mark.parametrize(
    ("text", "scripts"),
    [
        ("tpcb-like", [("tpcb-like", None)]),
        (MIX, [("tpcb-like", 9), ("select-only", 1)]),
        ("a@b.sql@9+c+d.sql@1", [("a@b.sql", 9), ("c+d.sql", 1)]),
        ("x@5@9+y@1", [("x@5", 9), ("y", 1)]),
        ("c++.sql", [("c++.sql", None)]),
        ("report@2024.sql", [("report@2024.sql", None)]),
        ("/home/u@1+x/orders.sql", [("/home/u@1+x/orders.sql", None)]),
        ("orders.sql@3", [("orders.sql@3", None)]),
        ("a@1+b", [("a@1+b", None)]),
        ("a@1+@2", [("a@1+@2", None)]),
        ("a@1+b@2+@3", [("a@1+b@2+@3", None)]),
    ],
)
def test_the_notation(text: str, scripts: list[tuple[str, int | None]]) -> None:
    assert [(s.name, s.weight) for s in parse_scripts(text)] == scripts
    assert render_scripts(parse_scripts(text)) == text


@given(st.text(alphabet="ab@+1.0/", min_size=1, max_size=30))
def test_no_part_of_a_text_is_lost(text: str) -> None:
    found = parse_scripts(text)
    assert found == (Script(text),) or len(found) > 1
    weights = [str(s.weight) for s in found if s.weight is not None]
    kept = sum(len(s.name) for s in found) + sum(map(len, weights)) + len(weights) * 2 - bool(weights)
    assert kept <= len(text) <= kept + text.count("0")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("orders.sql@3", "gives a weight to the only script"),
        ("a@0+b@1", "weight outside 1 to"),
        (f"a@{2**31}+b@1", "weight outside 1 to"),
        ("a@1+a@2", "two scripts called 'a'"),
        ("x/a.sql@1+y/a.sql@2", "two scripts called 'a'"),
        ("+".join(f"s{n}@1" for n in range(129)), "129 scripts"),
    ],
)
def test_faults_of_a_mix(text: str, fault: str) -> None:
    found = mix_fault(text)
    assert found is not None
    assert fault in found[0]
    assert found[1]


@pytest.mark.parametrize("text", ["tpcb-like", MIX, "a@b", "x@1.sql", "c++.sql"])
def test_what_is_no_fault(text: str) -> None:
    assert mix_fault(text) is None


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (["a.sql@9", "select-only@1"], ("a.sql@9+select-only@1",)),
        (["a.sql", "select-only"], ("a.sql", "select-only")),
        (["a.sql@9", "select-only"], ("a.sql@9", "select-only")),
        (["a.sql@9+b.sql@1", "c.sql@1"], ("a.sql@9+b.sql@1", "c.sql@1")),
        ("a.sql@9+b.sql@1", ("a.sql@9+b.sql@1",)),
    ],
)
def test_a_list_of_weights_is_one_mix(given: object, taken: tuple[str, ...]) -> None:
    assert Workload.model_validate({"script": given}).script == taken


def test_names_of_a_mix() -> None:
    found = cell("/srv/load/orders.sql@9+report.sql@1")
    assert found.script_name == "orders@9+report@1"
    assert found.id == "orders_9_report_1-s50-c8"
    assert cell("/a/b.sql").id == "b-s50-c8"


def test_long_mixes_have_different_names() -> None:
    long = "+".join(f"/srv/quite-a-long-name-of-script-{n}.sql@1" for n in range(4))
    other = long.removesuffix("@1") + "@2"
    ids = [cell(text).id for text in (long, other)]
    assert ids[0] != ids[1]
    assert all(len(one) < 80 for one in ids)


def test_a_mix_that_updates_branches_is_crowded_by_its_share() -> None:
    crowded = Workload(script=("select-only@1+tpcb-like@1", "select-only@8+tpcb-like@1"), scale=4, clients=10)
    assert [one.script for one in crowded.crowded] == ["select-only@1+tpcb-like@1"]


class TestFiles:
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path) -> None:
        (tmp_path / "orders.sql").write_text("SELECT 1;\n")
        (tmp_path / "a@2+b@1.sql").write_text("SELECT 1;\n")
        (tmp_path / "pipe.sql").write_text("\\startpipeline\nSELECT 1;\n\\syncpipeline\nSELECT 2;\n\\endpipeline\n")

    def test_a_mix_is_resolved(self, tmp_path: Path) -> None:
        problems, found = resolve_scripts("orders.sql@9+select-only@1", tmp_path)
        assert (problems, found) == ([], f"{tmp_path}/orders.sql@9+select-only@1")
        assert resolve_scripts("a@2+b@1.sql", tmp_path) == ([], f"{tmp_path}/a@2+b@1.sql")

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("orders.sql@9+nowhere.sql@1", "file nowhere.sql does not exist"),
            ("orders.sql@9+selct-only@1", "'selct-only' is neither"),
            ("tpcb-like@9+orders.sql", "'orders.sql' has no weight"),
            ("orders.sql@2", "gives a weight to the only script"),
            ("orders.sql@0+select-only@1", "weight outside"),
        ],
    )
    def test_what_is_wrong_with_it(self, tmp_path: Path, text: str, problem: str) -> None:
        problems, found = resolve_scripts(text, tmp_path)
        assert found == text
        assert problem in problems[0].text
        assert problems[0].hint or "weight" in problem

    def test_folders_that_read_as_a_weight(self, tmp_path: Path) -> None:
        folder = tmp_path / "u@1+x"
        folder.mkdir()
        (folder / "own.sql").write_text("SELECT 1;\n")
        assert resolve_scripts("own.sql", folder) == ([], f"{folder}/own.sql")
        problems, _ = resolve_scripts("own.sql@9+select-only@1", folder)
        assert "reads as a script with a weight" in problems[0].text

    def test_a_mix_with_long_paths(self, tmp_path: Path) -> None:
        names = [f"{'x' * 200}{n}.sql" for n in range(5)]
        for name in names:
            (tmp_path / name).write_text("SELECT 1;\n")
        problems, _ = resolve_scripts("+".join(f"{name}@1" for name in names), tmp_path)
        assert "more than 1000" in problems[0].text

    def test_pipelines_need_another_protocol(self, tmp_path: Path) -> None:
        campaign = tmp_path / "c.yaml"
        campaign.write_text("stacks: [ext4]\nworkload: {script: pipe.sql@1+orders.sql@2}\n")
        with pytest.raises(
            UsageError, match=r"c.yaml:2: workload.protocol: .*/pipe.sql uses \\startpipeline"
        ) as refused:
            load_campaign(campaign)
        assert "protocol: extended" in refused.value.hint
        assert "--protocol extended" in refused.value.hint
        campaign.write_text("stacks: [ext4]\nworkload: {script: pipe.sql@1+orders.sql@2, protocol: prepared}\n")
        assert len(load_campaign(campaign).workload.cells) == 1

    def test_commands_of_every_file(self, tmp_path: Path) -> None:
        found = commands_of([f"{tmp_path}/pipe.sql@1+{tmp_path}/orders.sql@2", "select-only"])
        assert found == {
            f"{tmp_path}/pipe.sql": {"startpipeline", "syncpipeline", "endpipeline"},
            f"{tmp_path}/orders.sql": frozenset(),
        }
        with pytest.raises(UsageError, match="cannot be read"):
            commands_of([f"{tmp_path}/gone.sql"])


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("\\set a 1\n  \\StartPipeline\nSELECT :a \\gset\n", ["set", "startpipeline", "gset"]),
        (
            "-- \\startpipeline\n/* \\a\n\\b */ SELECT '\\c', \"\\d\", E'\\'\\e', $$\\f$$, $x$\\g$$\\h$x$;\n\\end\n",
            ["end"],
        ),
        ("\\shell it's\n\\endpipeline\n", ["shell", "endpipeline"]),
        ("\\set a \\\n 1 + \\\n 2\n\\if 1\n", ["set", "if"]),
        ("/* never ends \\set a 1\n", []),
        ("", []),
    ],
)
def test_meta_commands(text: str, commands: list[str]) -> None:
    assert list(meta_commands(text)) == commands


class TestVariables:
    @pytest.mark.parametrize(
        ("variables", "said"),
        [
            ({"scale": "3"}, "pgbench sets the variable scale itself"),
            ({"a-b": "3"}, "'a-b' is not a variable"),
            ({"": "3"}, "'' is not a variable"),
            ({"a": "x\ny"}, "control character"),
            ({"a": "x\0y"}, "control character"),
            ({"a": "x" * 2000}, "longer than 1000"),
            ({"a": [1]}, "valid string"),
        ],
    )
    def test_what_is_refused(self, variables: Any, said: str) -> None:
        with pytest.raises(ValidationError, match=said):
            Workload(variables=variables)

    def test_values_of_a_file_are_its_text(self, tmp_path: Path) -> None:
        campaign = tmp_path / "c.yaml"
        campaign.write_text("stacks: [ext4]\nworkload: {variables: {day: 2026-01-01, n: 007, on: on, t: 12:30:00}}\n")
        assert load_campaign(campaign).workload.variables == {
            "day": "2026-01-01",
            "n": "007",
            "on": "on",
            "t": "12:30:00",
        }
        campaign.write_text("stacks: [ext4]\nworkload:\n  variables: {scale: 7}\n")
        with pytest.raises(UsageError, match=r"c.yaml:3: workload.variables: pgbench sets the variable scale"):
            load_campaign(campaign)

    def test_definitions(self) -> None:
        assert parse_definitions(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
        with pytest.raises(UsageError, match="gives no value"):
            parse_definitions(["a"])
        with pytest.raises(UsageError, match="gives a twice"):
            parse_definitions(["a=1", "a=2"])
