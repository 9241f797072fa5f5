"""Stacks on modelled media: up, attest, write, down, nothing left; and a daemon that dies meanwhile."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from standing import context_in, up_attest_write_down

from awaiting import is_running, wait_until
from built import standing
from loopback_sshd import LoopbackSshd
from pgstrata.host import delivery
from pgstrata.host.delivery import OWN, PROGRAM, deliver
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import command
from pgstrata.spec.file.files import resolve_stack_files
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.stack.build import attest
from pgstrata.stack.plan import plan_stack
from pgstrata.trial.survey.media_range import calibrated

pytestmark = pytest.mark.skipif(
    not (Path(sys.executable).parent / "strata-disk").exists(), reason="strata-disk is not built: cargo is missing"
)


def backing_file(node: str) -> str:
    """Empty where the loop device is free; of a file whose mount is gone only the end of its path is left."""
    try:
        return Path(f"/sys/block/{Path(node).name}/loop/backing_file").read_text()
    except OSError:
        return ""


@pytest.mark.parametrize(
    "text", ["media(sata-ssd)/ext4", "media(nvme,2,stretch=2)/btrfs(raid1)@wal=media(hdd-7200)/xfs"]
)
def test_a_stack_on_modelled_media(host: LocalHost, tmp_path: Path, text: str) -> None:
    attested = up_attest_write_down(host, tmp_path, parse_stack(text))
    rows = {row.what: row.actual for row in attested}
    assert rows["media data.0 flush"] == "arrives"
    assert rows["media data.0 model"] in text
    assert "read_us" in rows["media data parameters"]


MINE = (Path(__file__).parents[2] / "crates" / "strata-disk" / "models" / "nvme.toml").read_text()
MINE = MINE.replace('"nvme"', '"mine"').replace("value = 85", "value = 86.5")


def test_a_stack_on_a_model_of_ones_own(host: LocalHost, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    problems, stack = resolve_stack_files(parse_stack("media(./mine.toml,2)/btrfs(raid1)"), tmp_path)
    assert problems == []
    (tmp_path / "mine.toml").unlink()  # from here on the stack has all that it needs
    rows = {row.what: row.actual for row in up_attest_write_down(host, tmp_path, stack)}
    assert rows["media data.1 model"] == "mine"
    assert "read_us 86.5," in rows["media data.1 parameters"]


def test_a_model_of_ones_own_is_calibrated_beside_the_supplied_ones(host: LocalHost, tmp_path: Path) -> None:
    smallest = calibrated(host, str(tmp_path), {"mine": MINE})
    assert {"mine", "nvme"} < set(smallest)
    assert list(tmp_path.glob("pgstrata-*")) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_daemon_that_dies_is_noticed_and_leaves_nothing(
    own_mounts: None, host: LocalHost, tmp_path: Path, number: int
) -> None:
    plan = plan_stack(parse_stack("media(nvme)/ext4"), context_in(tmp_path))
    with standing(host, plan) as built:
        lock = tmp_path / "pgstrata-t1" / "data.media" / "lock"
        pid = int(lock.read_text())
        os.kill(pid, number)
        wait_until(lambda: not is_running(pid), "the daemon has ended")
        attested = {row.what: row for row in attest(host, plan, built)}
        assert not attested["media data.0 model"].holds
    assert not (tmp_path / "pgstrata-t1").exists()
    assert "disk0" not in backing_file(built.bindings["data.0"])


def test_a_host_over_ssh_is_sent_the_program_that_it_lacks(
    own_sshd: LoopbackSshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "SENT_FOLDER", str(tmp_path / "sent"))
    host = own_sshd.connect()
    deliver(host)
    (sent,) = (tmp_path / "sent").glob("*/*")
    said = host.run(replace(command(PROGRAM, "--version"), env=(("PATH", str(sent.parent)),)))
    assert said.stdout.startswith(f"{PROGRAM} ")
    assert sent.read_bytes() == OWN.read_bytes()
    host.close()
