"""A stack whose layers the kernel lacks: what brings them, and where else it can be tested."""

from __future__ import annotations

import pytest

from fake_host import FakeHost, completed
from pgstrata.host.protocol import Completed
from pgstrata.spec.crash import crash_campaign, named_stacks
from pgstrata.stack.preflight import Unsupported, check_campaign, render_hints
from pgstrata.trial.survey.preflight import render_lacking, render_unsupported

ROOT: dict[tuple[str, ...], str] = {("id", "-un"): "root\n", ("id", "-u"): "0\n", ("uname", "-m"): "x86_64\n"}
FILES = {
    "/etc/os-release": "ID=debian\n",
    "/proc/sys/kernel/osrelease": "6.1.0-21\n",
    "/lib/modules/6.1.0-21/modules.dep": "",
}
LAB = "or use a machine of the lab: --host lab"


def lacking(*stacks: str) -> tuple[Unsupported, ...]:
    asked: dict[tuple[str, ...], Completed] = {argv: completed(argv, text) for argv, text in ROOT.items()}
    host = FakeHost(asked, files=FILES, missing_programs=True)
    return check_campaign(host, crash_campaign(named_stacks(list(stacks))), scratch="/s").unsupported


@pytest.mark.parametrize(
    ("stack", "package"),
    [
        ("luks/ext4", "cryptsetup-bin"),
        ("lvm+cache/ext4", "thin-provisioning-tools"),
        ("lvm+writecache/ext4", "lvm2"),
        ("zvol/ext4", "zfsutils-linux"),
    ],
)
def test_the_hint_names_the_package(stack: str, package: str) -> None:
    (one,) = lacking(stack)
    assert package in one.hint.replace(";", " ").split()


@pytest.mark.parametrize("stack", ["zfs", "lvm/ext4", "md(raid1,2)/ext4", "nfs", "luks/ext4", "zvol/ext4"])
def test_the_hint_names_a_host_that_has_every_layer(stack: str) -> None:
    (one,) = lacking(stack)
    assert one.hint.endswith(LAB)
    assert "apt-get install " in one.hint


def test_what_several_stacks_lack_is_said_once_and_last() -> None:
    unsupported = lacking("zfs", "md(raid1,2)/ext4")
    assert render_hints(hint for one in unsupported for hint in one.hints).count(LAB) == 1


def test_a_hint_that_several_need_stands_behind_the_last_of_them() -> None:
    assert render_hints(["install a", "or b", "", "install c", "or b"]) == "install a; install c; or b"


def test_an_error_leaves_its_hint_to_the_hint() -> None:
    one = Unsupported("zfs", "there is no zfs", ("install it",))
    assert render_lacking(one) == "zfs cannot be built here: there is no zfs"
    assert render_unsupported(one) == "zfs cannot be built here: there is no zfs (install it)"
