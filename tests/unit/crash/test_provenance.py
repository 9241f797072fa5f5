"""A state of a record that may be somebody else's: what it can name, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from test_named_state import line, recorded

from fake_host import FakeHost
from pgstrata.crash.named_state import NamedState, named_state
from pgstrata.crash.replay import (
    refuse_large,
    refuse_to_mount,
    refuse_to_run,
    replay_campaign,
    why_strange,
    write_state,
)
from pgstrata.errors import PreflightError, UsageError
from pgstrata.host.protocol import Space
from pgstrata.record.reader import read

HERE = {"one of ours"}
OURS = {os.geteuid()}


class SmallHost(FakeHost):
    def space(self, path: str) -> Space:
        return Space(total_bytes=100 << 20, free_bytes=30 << 20)


def one_state(folder: Path, machine: str = "one of ours") -> NamedState:
    out = recorded(folder, {"1.0": line(0)})
    facts = out / "crash" / "ext4-0" / "facts.json"
    told = json.loads(facts.read_text())
    facts.write_text(json.dumps({**told, "checked": {**told["checked"], "machine id": machine}}))
    return named_state(f"{out}/crash/ext4-0/1.0")


def change(named: NamedState, name: str, **changes: object) -> None:
    path = Path(named.data.source.text) / named.trial.folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("token", ["/../../../../etc", "a/b", "..", "a b", "x" * 65, "\n"])
def test_a_record_cannot_choose_where_its_state_is_mounted(tmp_path: Path, token: str) -> None:
    named = one_state(tmp_path)
    change(named, "durability.json", token=token)
    data = read(tmp_path / "out")
    assert [damaged.id for damaged in data.unreadable] == ["crash/ext4-0"]
    with pytest.raises(UsageError, match="keeps no state that failed"):
        named_state(f"{tmp_path}/out/crash/ext4-0/1.0")


def test_a_record_names_no_file_of_this_machine(tmp_path: Path) -> None:
    named = one_state(tmp_path)
    path = tmp_path / "out" / "crash" / "ext4-0" / "planned.json"
    planned = json.loads(path.read_text())
    planned["stack"]["postgresql"]["postgresql_conf"] = "/dev/zero"
    path.write_text(json.dumps(planned))
    (stack,) = replay_campaign(named, tmp_path).stacks
    assert stack.postgresql.postgresql_conf is None
    assert stack.postgresql.settings == named.planned.stack.postgresql.settings


def test_an_event_log_does_not_fill_the_disk(tmp_path: Path) -> None:
    host = SmallHost()
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(bytes(19 << 20)))
    refuse_large(host, "/s", packed)
    packed.write_bytes(gzip.compress(bytes(21 << 20)))
    with pytest.raises(PreflightError, match=r"does not fit into /s on .*30.*MiB are free, and 10% must stay free"):
        refuse_large(host, "/s", packed)
    packed.write_bytes(gzip.compress(os.urandom(4096))[:2000])
    with pytest.raises(PreflightError, match="the event log is damaged"):
        refuse_large(host, "/s", packed)


def test_what_was_recorded_here_is_ones_own(tmp_path: Path) -> None:
    assert why_strange(one_state(tmp_path), HERE, OURS) == ""


def test_a_file_another_machine_and_another_user_are_strange(tmp_path: Path) -> None:
    named = one_state(tmp_path)
    write_state(named, tmp_path / "one.zip", {})
    assert why_strange(named_state(str(tmp_path / "one.zip")), HERE, OURS) == "it comes in a file"
    assert why_strange(named, {"another"}, OURS) == "it was recorded on another machine"
    assert why_strange(named, HERE, {os.geteuid() + 1}) == f"{tmp_path}/out belongs to user {os.geteuid()}"


def test_nothing_of_a_strangers_runs_unasked(tmp_path: Path) -> None:
    named = one_state(tmp_path)
    refuse_to_run(named, "", "pgstrata")
    with pytest.raises(
        PreflightError, match=r"may be somebody else's: it comes in a file; .* runs as pgstrata"
    ) as error:
        refuse_to_run(named, "it comes in a file", "pgstrata")
    assert error.value.hint.startswith("--trust, ")


def test_a_strangers_pool_does_not_say_where_it_is_mounted(tmp_path: Path) -> None:
    named = one_state(tmp_path)
    refuse_to_mount(named, "it comes in a file")  # ext4 is mounted where it is told
    path = tmp_path / "out" / "crash" / "ext4-0" / "planned.json"
    planned = json.loads(path.read_text())
    planned["stack"]["data"]["fs"] = {"kind": "zfs"}
    path.write_text(json.dumps(planned))
    refuse_to_mount(named, "")
    with pytest.raises(PreflightError, match="zfs pool is mounted where its author said"):
        refuse_to_mount(named, "it comes in a file")
