"""A state by its name, and what is refused because it is another one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from crashed import write_crash
from pgstrata.crash.event_log_archive import LOG, state_file
from pgstrata.crash.named_state import named_state
from pgstrata.crash.reduction import refuse_small
from pgstrata.crash.replay import refuse_another, write_state
from pgstrata.errors import PreflightError, UsageError
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.crash import crash_campaign, named_stacks

DIGEST = f"{0:016x}"


def line(number: int, digest: str = DIGEST) -> str:
    """As `strata-disk states` prints it."""
    state = {"id": number, "cut": 100 + number, "how": "nothing kept", "volatile": 3, "kept": 0, "digest": digest}
    return json.dumps({**state, "chosen": {"whole": "nothing"}}) + "\n"


def recorded(folder: Path, states: Mapping[str, str], version: str = "") -> Path:
    """A crash trial of ext4 in which these states failed."""
    campaign = crash_campaign(named_stacks(["ext4", "xfs"]))
    with CampaignDirectory.create_or_open(folder / "out", campaign, "crash") as directory:
        write_crash(directory, "ext4", verdict="lost", states=3)
        write_crash(directory, "xfs", reason="it failed before there were states")
    trial = folder / "out" / "crash" / "ext4-0"
    (trial / LOG).parent.mkdir()
    (trial / LOG).write_bytes(gzip.compress(b"a log"))
    (trial / "raw" / "states").mkdir()
    for name, text in states.items():
        (trial / state_file(name)).write_text(text)
    if version:
        path = folder / "out" / "campaign.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "version": version}))
    return folder / "out"


def test_a_state_is_named_as_reports_print_it(tmp_path: Path) -> None:
    out = recorded(tmp_path, {"1.0": line(0), "1.1": line(1)})
    named = named_state(f"{out}/crash/ext4-0/1.0")
    assert (named.title, named.state.cut, named.recorded_digest) == ("crash/ext4-0/1.0", 100, DIGEST)
    with named.data.source.open(named.log) as log:
        assert gzip.decompress(log.read()) == b"a log"


def test_the_only_state_needs_no_name_and_a_bundle_has_one(tmp_path: Path) -> None:
    out = recorded(tmp_path, {"1.0": line(0), "1.1": line(1)})
    with pytest.raises(UsageError, match="has 2 states that failed") as error:
        named_state(str(out))
    assert error.value.hint == f"for example {out}/crash/ext4-0/1.0"
    named = named_state(f"{out}/crash/ext4-0/1.0")
    write_state(named, tmp_path / "one.zip", {})
    again = named_state(str(tmp_path / "one.zip"))
    assert (again.title, again.state, again.record) == (named.title, named.state, named.record)
    write_state(named, tmp_path / "small.zip", {state_file("1.0-minimal"): line(0, "ff").encode()})
    assert named_state(str(tmp_path / "small.zip")).name == "1.0-minimal"
    with pytest.raises(UsageError, match="is there already"):
        write_state(named, tmp_path / "one.zip", {})


def test_names_that_lead_nowhere_are_told(tmp_path: Path) -> None:
    out = recorded(tmp_path, {"1.0": line(0)})
    with pytest.raises(UsageError, match=r"ext4-0/1\.7 is no state whose failure was kept"):
        named_state(f"{out}/crash/ext4-0/1.7")
    (out / "crash" / "ext4-0" / LOG).unlink()
    with pytest.raises(UsageError, match="keeps no state that failed"):
        named_state(f"{out}/crash/ext4-0/1.0")


def test_another_version_is_refused_by_name(tmp_path: Path) -> None:
    out = recorded(tmp_path, {"1.0": line(0)}, version="0.0.7")
    with pytest.raises(PreflightError, match=r"recorded by pgstrata 0\.0\.7") as error:
        named_state(f"{out}/crash/ext4-0/1.0")
    assert error.value.hint == "pip install pgstrata==0.0.7"


def test_another_log_or_seed_is_refused_by_the_digest(tmp_path: Path) -> None:
    out = recorded(tmp_path, {"1.0": line(0), "1.1": line(1, "00ab")})
    refuse_another(named_state(f"{out}/crash/ext4-0/1.0"), DIGEST)
    with pytest.raises(PreflightError, match="is another state than the one that was recorded: its digest is ffff"):
        refuse_another(named_state(f"{out}/crash/ext4-0/1.0"), "ffff")
    with pytest.raises(PreflightError, match="makes another state than the one that was looked at: its digest is 00ab"):
        refuse_another(named_state(f"{out}/crash/ext4-0/1.1"), "00ab")


def test_what_cannot_be_made_smaller_is_refused(tmp_path: Path) -> None:
    out = recorded(tmp_path, {"1.0": line(0), "1.0-minimal": line(0)})
    assert refuse_small(named_state(f"{out}/crash/ext4-0/1.0")).id == "1.0"
    with pytest.raises(UsageError, match="as small as possible already"):
        refuse_small(named_state(f"{out}/crash/ext4-0/1.0-minimal"))
    failed = named_state(f"{out}/crash/ext4-0/1.0")
    assert failed.record is not None
    nested = replace(failed, record=failed.record.model_copy(update={"interrupts": "1.2"}))
    with pytest.raises(UsageError, match="is no state in which transactions that were recorded"):
        refuse_small(nested)
