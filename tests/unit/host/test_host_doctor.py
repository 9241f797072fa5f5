"""doctor: the same diagnosis as JSON and for people."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from pgstrata.cli.diagnosis import Diagnosis, print_diagnosis, render_json
from pgstrata.cli.verbs.doctor import run_doctor
from pgstrata.host.advice import Advice
from pgstrata.host.capabilities import Missing
from pgstrata.host.facts import Facts
from pgstrata.host.local import LocalHost
from pgstrata.stack.disks import Disk
from pgstrata.stack.preflight import known_capabilities

LACKS = (
    Missing("fs.zfs", "build zfs pools", "zpool is not installed", "apt-get install zfsutils-linux", ()),
    Missing("fio", "compare with fio", "fio is not [installed]", "apt-get install fio", ()),
)
FOUND = Diagnosis(
    host="ssh://db1",
    kind="native",
    medium="loop file on ext4 on /dev/sda",
    facts=Facts({"CPU model": "X", "CPUs": "8", "memory": "32.0 GiB", "kernel": "6.1.0"}, {"load average": "0.10"}),
    missing=LACKS,
    advice=(Advice("turbo", "note", "turbo is on", "clocks fall", "echo 1 > no_turbo"),),
    postgresql=(),
    disks=(
        Disk("/dev/sdb", "/dev/disk/by-id/ata-x", "disk", 2**40, "Fast [1]", "carries data", "ext4 'home'"),
        Disk("/dev/sdc", "/dev/sdc+512+8:32", "disk", 512, "", "blank", ""),
    ),
)


def _printed(found: Diagnosis) -> str:
    out = io.StringIO()
    print_diagnosis(found, Console(file=out, width=160, no_color=True))
    return out.getvalue()


def test_json_lists_every_capability_with_what_is_missing() -> None:
    value = render_json(FOUND)
    assert value["schema"] == "pgstrata.doctor/1"
    assert value["host"] == {"name": "ssh://db1", "kind": "native", "medium": "loop file on ext4 on /dev/sda"}
    by_name = {one["name"]: one for one in value["capabilities"]}
    assert list(by_name) == list(known_capabilities())
    assert by_name["fs.ext4"]["available"]
    assert not by_name["fs.zfs"]["available"]
    assert by_name["fs.zfs"]["install"] == "apt-get install zfsutils-linux"
    assert value["advice"][0]["topic"] == "turbo"
    assert [disk["id"] for disk in value["disks"]] == ["/dev/disk/by-id/ata-x", "/dev/sdc+512+8:32"]


def test_people_get_reasons_commands_and_advice() -> None:
    text = _printed(FOUND)
    assert "ssh://db1 (native): X, 8 CPUs, 32.0 GiB, Linux 6.1.0" in text
    assert "fio is not [installed]" in text
    assert "HINT: for fs.zfs: apt-get install zfsutils-linux\n" in text
    assert "PostgreSQL: none: install the package postgresql" in text
    assert "-> echo 1 > no_turbo" in text
    assert "/dev/disk/by-id/ata-x" in text
    assert "Fast [1]" in text
    assert "carries data: ext4 'home'" in text
    assert "/dev/sdc+512+8:32" in text
    assert "--erase ID" in text


def test_a_quiet_host_is_told_to_be_one() -> None:
    assert "no settings that distort benchmarks" in _printed(Diagnosis(**{**vars(FOUND), "advice": ()}))


def test_modelled_media_are_told_with_the_stretch_that_they_need() -> None:
    found = replace(FOUND, media={"hdd-7200": 1.0, "nvme": 3.2})
    assert render_json(found)["modelled_media"][1] == {"model": "nvme", "smallest_stretch": 3.2}
    (hdd,) = (line for line in _printed(found).splitlines() if "hdd-7200" in line)
    (nvme,) = (line for line in _printed(found).splitlines() if "nvme" in line)
    assert "as it is" in hdd
    assert "with stretch=4" in nvme
    assert render_json(FOUND)["modelled_media"] is None
    assert "Modelled media" not in _printed(FOUND)


def test_doctor_of_this_machine(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    run_doctor(LocalHost(), str(tmp_path), json=True)
    value = json.loads(capsys.readouterr().out)
    assert value["host"]["name"] == "local"
    assert value["facts"]["checked"]["kernel"]
    assert {one["source"] for one in value["postgresql"]} & {"system", "embedded"}
    run_doctor(LocalHost(), str(tmp_path))
    assert "What this host can build" in capsys.readouterr().out
