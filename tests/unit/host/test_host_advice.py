"""Advice: each rule speaks when it should, and only then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fake_host import FakeHost
from pgstrata.host.advice import Readings, advise, read_for_advice
from pgstrata.host.facts.activity import Server
from pgstrata.host.protocol import Busy, Space

GOOD = Readings(
    cpus=8,
    governors=("performance",),
    energy_preferences=("performance",),
    turbo="off",
    throttle_count=0,
    clock_source="tsc",
    clock_sources=("tsc", "hpet"),
    memory_bytes=64 << 30,
    huge_pages="madvise",
    sysctls=(("vm.dirty_ratio", "0"), ("vm.dirty_bytes", "536870912"), ("vm.swappiness", "60")),
    shm=Space(32 << 30, 32 << 30),
    scratch_space=Space(100 << 30, 50 << 30),
    load=0.1,
)


def test_a_good_host_gets_no_advice() -> None:
    assert advise(GOOD) == ()


@pytest.mark.parametrize(
    ("change", "topic", "weight", "fix"),
    [
        ({"governors": ("performance", "schedutil")}, "CPU governor", "warning", "cpupower"),
        ({"energy_preferences": ("power",)}, "power saving", "warning", "energy_performance_preference"),
        ({"turbo": "on"}, "turbo", "note", "no_turbo"),
        ({"throttle_count": 3}, "temperature", "warning", "cooling"),
        ({"virtualisation": "kvm"}, "virtualisation", "note", ""),
        ({"clock_source": "hpet"}, "clock source", "warning", "echo tsc >"),
        ({"clock_source": "acpi_pm", "clock_sources": ("acpi_pm",)}, "clock source", "warning", "tsc=reliable"),
        ({"swap_bytes": 2 << 30}, "swap", "note", "swapoff"),
        ({"swap_bytes": 2 << 30, "swap_used_bytes": 1 << 20}, "swap", "warning", "swapoff"),
        ({"huge_pages": "always"}, "transparent huge pages", "warning", "madvise"),
        (
            {"sysctls": (("vm.dirty_ratio", "20"), ("vm.dirty_bytes", "0"))},
            "write-back limits",
            "note",
            "vm.dirty_bytes",
        ),
        ({"volatile_disks": ("/dev/sda",)}, "disk write cache", "note", ""),
        ({"busy": (Busy(7, "cc1", 0.9, 0.0),)}, "other services", "warning", "stop"),
        ({"load": 3.0}, "load", "warning", "wait"),
        ({"servers": (Server(9, "postgres", "postgres"),)}, "PostgreSQL servers", "note", "stop"),
        ({"shm": Space(64 << 20, 64 << 20)}, "shared memory", "warning", "remount"),
        ({"scratch_space": Space(100 << 30, 9 << 30)}, "free space", "warning", "--scratch"),
    ],
)
def test_each_spoiler_is_told_alone(change: dict[str, Any], topic: str, weight: str, fix: str) -> None:
    (advice,) = advise(replace(GOOD, **change))
    assert (advice.topic, advice.weight) == (topic, weight)
    assert fix in advice.fix
    assert advice.found
    assert advice.effect


def test_warnings_come_first() -> None:
    weights = [a.weight for a in advise(replace(GOOD, turbo="on", virtualisation="kvm", load=9.0, huge_pages="always"))]
    assert weights == ["warning", "warning", "note", "note"]


def test_little_swap_use_is_no_topic_with_low_swappiness() -> None:
    assert advise(replace(GOOD, swap_bytes=1 << 30, sysctls=(("vm.swappiness", "1"),))) == ()


def test_readings_of_a_bare_host_raise_nothing() -> None:
    readings = read_for_advice(FakeHost(missing_programs=True), "/scratch")
    assert readings.governors == ()
    assert isinstance(advise(readings), tuple)
