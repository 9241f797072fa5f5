"""Text that would act instead of being read: escaped where it is shown, refused as a name."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.printable import one_line, plain_name, printable, spreadsheet_text
from pgstrata.spec.stack import Kernel, Stack, Volume
from pgstrata.spec.workload import Cell

HOSTILE = (
    "a\x1b[2Jb",
    "a\x9b2Jb",
    "a\u202eb",
    "a\u2066b",
    "a\x07b",
    "a\x00b",
    "a\rb",
    "a\u2028b",
    "a\ufeffb",
    "\ud800",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_acts_is_left(text: str) -> None:
    assert printable(text).isprintable()
    assert one_line(text).isprintable()
    with pytest.raises(ValueError, match="control character"):
        plain_name(text)


@given(st.text())
def test_what_is_shown_holds_no_control_character(text: str) -> None:
    assert all(c in "\n\t" or c == "\N{NO-BREAK SPACE}" or c.isprintable() or c.isspace() for c in printable(text))
    assert "\n" not in one_line(text)


def test_plain_text_stays() -> None:
    for text in ("xfs over lvm(25)", "größer\N{NO-BREAK SPACE}als", "日本", "a\tb\nc"):
        assert printable(text) == text


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_spreadsheet_takes_no_text_for_a_formula(text: str) -> None:
    assert spreadsheet_text(text).startswith("'")
    written = io.StringIO()
    csv.writer(written).writerow([spreadsheet_text(text)])
    assert next(csv.reader(io.StringIO(written.getvalue(), newline="")))[0][:1] == "'"


@pytest.mark.parametrize("name", ["", "a\nb", "a\x1b[31mb", "x" * 2000])
def test_names_of_stacks_campaigns_scripts_and_trials(name: str) -> None:
    stack = Stack(name="fine", data=Volume(fs=Tmpfs()))
    cell = Cell(script="tpcb-like", scale=1, clients=1)
    trial = Trial(id="b000-00-x", stack="x", block=0, position=0, load="fresh", scale=1, cells=(cell,), workload_seed=1)
    for make in (
        lambda: Stack(name=name, data=Volume(fs=Tmpfs())),
        lambda: Campaign(name=name, stacks=(stack,)),
        lambda: Cell(script=name, scale=1, clients=1),
        lambda: Trial.model_validate({**trial.model_dump(), "stack": name}),
    ):
        with pytest.raises(ValidationError):
            make()


@pytest.mark.parametrize("id_", ["", "../x", "a/b", "-x", ".x", "a\nb"])
def test_a_trials_id_is_the_name_of_its_folder(id_: str) -> None:
    with pytest.raises(ValidationError, match="id"):
        Trial.model_validate({"id": id_, "stack": "x", "block": 0, "position": 0, "load": "fresh", "scale": 1,
                              "cells": (), "workload_seed": 1})  # fmt: skip


@pytest.mark.parametrize("script", ["-rf.sql", "/x/../--.sql", "é" * 400, ".sql", "a@3", "a\\b"])
def test_cells_have_names_fit_for_folders(script: str) -> None:
    id_ = Cell(script=script, scale=1, clients=1).id
    assert id_.replace("-", "").replace("_", "").isalnum()
    assert not id_.startswith("-")
    assert len(id_.encode()) < 255


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vm./../../../etc/passwd", "1"),
        ("vm.x/y", "1"),
        ("kernel.core_pattern", "|/bin/sh"),
        ("kernel.modprobe", "/tmp/x"),
        ("vm.swappiness", "1\n2"),
    ],
)
def test_a_kernel_setting_stays_below_proc_sys_and_starts_nothing(key: str, value: str) -> None:
    with pytest.raises(ValidationError, match=r"kernel setting|numbers and words"):
        Kernel(sysctl={key: value})
    assert Kernel(sysctl={"kernel.sem": "250 32000 32 128", "vm.swappiness": "1"})


def test_a_campaign_file_with_a_hostile_name_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text('name: "a\\u001b[2Jb"\nstacks: {"x\\u202ey": tmpfs}\n', encoding="utf-8")
    with pytest.raises(UsageError, match="control character") as error:
        load_campaign(file)
    assert error.value.message.isprintable() or "\n" in error.value.message
    assert "c.yaml:1: name: " in error.value.message
    assert "c.yaml:2: " in error.value.message
