"""A campaign in the namespaces of another process, entered by a program as a container's are."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from awaiting import wait_until
from pgstrata.host.ssh import connect
from pgstrata.record.reader import read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.expand import block_trials
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.trial.events import silent
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.opening import performance_runner


@pytest.fixture
def container(place: Path) -> Iterator[str]:
    """The address of a process in namespaces of its own, which has a tmpfs that nobody else sees."""
    (place / "private").mkdir()
    make = f"mount -t tmpfs tmpfs {place}/private && chmod 755 {place}/private && touch {place}/ready && exec sleep 600"
    own = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]
    process = subprocess.Popen([*own, "sh", "-c", make])
    try:
        wait_until((place / "ready").exists, "the namespaces")
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        entering = ["nsenter", "--target", child, "--mount", "--pid", "--ipc", "--uts", "--"]
        yield f"exec:{shlex.join([*entering, 'env', f'PGSTRATA_STATE_DIRECTORY={place}/state'])}"
    finally:
        process.kill()
        process.wait(timeout=30)


def test_a_directory_of_a_container_is_measured(container: str, place: Path, tmp_path: Path) -> None:
    file = place / "inside.yaml"
    lines = [f"stacks: {{inside: 'dir:{place}/private'}}", "workload: {scale: 1, clients: 2, duration: 1s, warmup: 0s}"]
    file.write_text("\n".join([*lines, "runs: {blocks: 1}"]) + "\n", encoding="utf-8")
    campaign = load_campaign(file).model_copy(update={"host": container})
    host, interruption = connect(container), Interruption()
    try:
        with (
            CampaignDirectory.create_or_open(tmp_path / "out", campaign, "run") as directory,
            performance_runner(host, campaign, directory, silent, interruption) as (runner, stacks),
        ):
            assert stacks == ("inside",)
            (trial,) = block_trials(campaign, 0, stacks)
            verdict = runner.run(trial, directory, silent)
            assert (verdict.status, verdict.reason) == ("ok", "")
        assert not os.listdir(place / "private")
        assert host.list_directory(f"{place}/private") == ()
    finally:
        host.close()
    (found,) = read(tmp_path / "out").trials
    assert found.facts is not None
    assert found.facts.name == container
    fstypes = {row.actual for row in found.attested if row.what == "data mount fstype"}
    assert fstypes == {"tmpfs"}
