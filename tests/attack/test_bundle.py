"""A campaign in one file: whole, the same bytes each time, and on demand without what tells whose machine it was."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from crashed import write_crash
from pgstrata.analyze.campaign.judge import judge
from pgstrata.cli.main import app
from pgstrata.errors import UsageError
from pgstrata.record import redact
from pgstrata.record.reader import read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.redact import bundled_names, redaction_of, write_record
from pgstrata.record.schema import CellResult, EventRecord, HostFacts, PlannedRecord, TrialVerdict
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.crash import crash_campaign
from pgstrata.spec.expand import block_trials, slug
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.spec.workload import Cell, Workload
from pgstrata_fake.campaigns import Shape, write_campaign
from pgstrata_fake.cells import write_cell

HOST = "wolpertinger.example.org"
SERIAL = "S6PNNM0R123456"
DISK = f"/dev/disk/by-id/ata-Samsung_SSD_870_EVO_{SERIAL}"
PLACE = "/home/waltraud/mein Platz"
SCRIPT = "/home/waltraud/arbeit/kunden.sql"
MACHINE = "4f2a9c01deadbeef"
UUID = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
PRIVATE = (
    "wolpertinger", "Wolpertinger", "waltraud", "mein Platz", "arbeit", SERIAL, MACHINE, UUID, "203.0.113.7",
    "srv-geheim", "/srv/geheim", "wwn-0x5002538e4",
)  # fmt: skip


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = Shape(stacks=("ext4", "xfs"), blocks=3, duration_s=5, incidents=False)
    return write_campaign(tmp_path_factory.mktemp("bundle") / "campaign", shape)


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A campaign with names in every place that holds text."""
    stacks = tuple(
        parse_stack(text).model_copy(update={"name": text}) for text in ("dir:/srv/geheim", f"disk({DISK})/xfs", "xfs")
    )
    campaign = Campaign(
        name=f"nightly on {HOST}", note=f"in {PLACE}", host=f"ssh://waltraud@{HOST}:2222", scratch=PLACE, erase=(DISK,),
        stacks=stacks, workload=Workload(script=(SCRIPT,), scale=(1,), clients=(2,), duration=3.0),
    )  # fmt: skip
    with CampaignDirectory.create_or_open(tmp_path / "private", campaign, source_text=f"# {PLACE}\n") as directory:
        for block in range(3):
            for trial in block_trials(campaign, block, [s.name for s in stacks]):
                _record(directory, campaign, trial)
    return tmp_path / "private"


def _record(directory: CampaignDirectory, campaign: Campaign, trial: Trial) -> None:
    recorder = directory.start_trial(trial, PlannedRecord(trial=trial, stack=campaign.stack(trial.stack), steps=()))
    told = {
        "kernel parameters": f"root=UUID={UUID}", "vm.dirty_ratio": "20", "medium": f"loop on {DISK}",
        "addresses": "203.0.113.7, 127.0.0.1", "disk": "wwn-0x5002538e40a1b2c3", "tool": "/usr/sbin/mkfs.xfs",
    }  # fmt: skip
    facts = HostFacts(name=f"waltraud@{HOST}:2222", checked={"machine id": MACHINE}, told=told, medium=f"on {DISK}")
    recorder.write("facts.json", facts)
    argv = ("mkfs.xfs", f"--root={PLACE}/x", f"'{SCRIPT}'", f"{HOST}:/srv/geheim", "Wolpertinger")
    recorder.append("events.jsonl", EventRecord(at="2026-01-01T00:00:00Z", event="command", argv=argv, host=HOST))
    recorder.write_text("raw/postgresql.log", f"LOG: connection from {HOST}\n")
    cell = trial.cells[0]
    result = CellResult(
        cell=cell,
        started="",
        duration_s=3,
        transactions=300,
        tps=100.0 + trial.block,
        latency_avg_ms=1,
        latency_stddev_ms=1,
        initial_connection_ms=1,
    )
    devices = [(1.0, f"wwn-0x5002538e40a1b2c3-{at}", "data", *(1.0 for _ in range(8))) for at in range(2)]
    write_cell(recorder, result, [99.0, 100.0, 101.0], {"devices": devices})
    recorder.finish(TrialVerdict(trial_id=trial.id, status="ok", reason=f"see {PLACE}/log"))


def contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of members, Parquet as the strings it holds."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            if name.endswith(".parquet"):
                table = pq.ParquetFile(io.BytesIO(content)).read()
                content += json.dumps(table.to_pylist()).encode() + str(table.schema.metadata).encode()
            yield name, content


def test_the_same_record_gives_the_same_bytes(plain: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(plain, tmp_path / "elsewhere" / "copied")
    for at, directory in enumerate((plain, copy)):
        done = CliRunner().invoke(app, ["bundle", str(directory), "--out", str(tmp_path / f"{at}.zip")])
        assert done.exit_code == 0, done.output
    assert (tmp_path / "0.zip").read_bytes() == (tmp_path / "1.zip").read_bytes()


def test_a_bundle_is_judged_as_its_directory(plain: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["bundle", str(plain), "--out", str(tmp_path / "b.zip"), "--json"])
    value = json.loads(done.stdout)
    bundled, data = read(tmp_path / "b.zip"), read(plain)
    assert judge(bundled) == judge(data)
    assert [t.id for t in bundled.trials] == [t.id for t in data.trials]
    assert bundled.trials[0].raw_names() == data.trials[0].raw_names()
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        names = archive.namelist()
        assert {"report.html", "report.json", "campaign.json"} <= set(names)
        assert json.loads(archive.read("report.json"))["schema"] == "pgstrata.report/1"
        assert {m.external_attr for m in archive.infolist()} == {0o600 << 16}
    assert (value["files"], value["trials"], value["redacted"]) == (len(names), 6, None)


def test_a_trial_that_still_runs_and_what_does_not_belong_are_left_out(plain: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(plain, tmp_path / "copied")
    (directory / "trials" / ".b09.partial").mkdir()
    for name in ("trials/.b09.partial/planned.json", ".lock", "notes.txt", "report.html"):
        (directory / name).write_text("stale")
    write_record(tmp_path / "b.zip", read(directory))
    assert not [c for _, c in contents(tmp_path / "b.zip") if c == b"stale"]


def test_redacted_nothing_tells_whose_machine_it_was(private: Path, tmp_path: Path) -> None:
    whole = b"".join(c for _, c in contents_of_bundle(private, tmp_path / "whole.zip"))
    assert all(word.encode() in whole for word in PRIVATE if word != "srv-geheim")
    for name, content in contents_of_bundle(private, tmp_path / "redacted.zip", "--redact"):
        found = [word for word in PRIVATE if word.encode() in content or word in name]
        assert found == [], f"{name} holds {found}"


def contents_of_bundle(directory: Path, out: Path, *options: str) -> list[tuple[str, bytes]]:
    done = CliRunner().invoke(app, ["bundle", str(directory), "--out", str(out), *options])
    assert done.exit_code == 0, done.output
    return list(contents(out))


def test_redacted_it_says_the_same_of_the_stacks(private: Path, tmp_path: Path) -> None:
    contents_of_bundle(private, tmp_path / "r.zip", "--redact")
    before, after = read(private), read(tmp_path / "r.zip")
    assert after.unreadable == ()
    assert [t.stack.data.fs.kind for t in after.trials] == [t.stack.data.fs.kind for t in before.trials]
    found, expected = judge(after), judge(before)
    assert [s.metrics["tps"] for s in found.stacks] == [s.metrics["tps"] for s in expected.stacks]
    assert [c.id for c in found.cells] == [c.id for c in expected.cells] == ["kunden-s1-c2"]
    assert len({t.facts.checked["machine id"] for t in after.trials if t.facts}) == 1
    told = next(t.facts.told for t in after.trials if t.facts)
    assert told["vm.dirty_ratio"] == "20"
    assert told["tool"] == "/usr/sbin/mkfs.xfs"
    assert "127.0.0.1" in told["addresses"]


def test_redacted_scripts_of_a_mix_keep_the_name_of_their_cell(plain: Path) -> None:
    data = read(plain)
    mix = "/home/kunden liste/orders.sql@9+select-only@1+/srv/report.sql@2"
    workload = data.campaign.workload.model_copy(update={"script": (mix,)})
    campaign = data.campaign.model_copy(update={"workload": workload})
    redaction = redaction_of(replace(data, record=data.record.model_copy(update={"campaign": campaign})), [])
    found = redaction.text(mix)
    assert found == "/redacted/scripts/orders.sql@9+select-only@1+/redacted/scripts/report.sql@2"
    assert Cell(script=found, scale=1, clients=1).id == Cell(script=mix, scale=1, clients=1).id
    assert redaction.text("send /srv/report.sql to x") == "send /redacted/scripts/report.sql to x"


def test_a_machine_named_as_a_setting_keeps_its_settings(plain: Path) -> None:
    redaction = redaction_of(read(plain), ["vm"])
    assert redaction.text("vm.dirty_bytes on vm, kvm") == "vm.dirty_bytes on host-1, kvm"


def test_own_names_are_taken_out(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "own_names", lambda: ("db-test-1",))
    for name, content in contents_of_bundle(plain, tmp_path / "r.zip", "--redact"):
        assert b"db-test-1" not in content, name


def test_a_name_that_is_a_word_of_the_record_is_refused(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redact, "own_names", lambda: ("screen",))
    done = CliRunner().invoke(app, ["bundle", str(plain), "--out", str(tmp_path / "r.zip"), "--redact"])
    assert isinstance(done.exception, UsageError)
    assert "cannot be told from words of the record" in done.exception.message
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_not_followed(plain: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(plain, tmp_path / "copied")
    trial = sorted((directory / "trials").iterdir())[0]
    (trial / "raw" / "secret").symlink_to("/etc/hostname")
    with pytest.raises(UsageError, match="is a link"):
        write_record(tmp_path / "b.zip", read(directory))


def test_a_file_that_is_there_is_kept(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.zip").write_text("mine")
    done = CliRunner().invoke(app, ["bundle", str(plain), "--out", str(tmp_path / "mine.zip")])
    assert isinstance(done.exception, UsageError)
    assert (tmp_path / "mine.zip").read_text() == "mine"


def test_links_and_ways_out_in_a_bundle_lead_nowhere(plain: Path, tmp_path: Path) -> None:
    """A hostile bundle: its members are read by name, as content, and nothing is written anywhere."""
    path = tmp_path / "b.zip"
    write_record(path, read(plain))
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("trials/b77/planned.json")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("trials/b77/verdict.json", "{}")
        archive.writestr("../../escaped/campaign.json", "{}")
        archive.writestr("/absolute/campaign.json", "{}")
    data = read(path)
    assert len(data.trials) == 6
    assert [one.id for one in data.unreadable] == ["b77"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b.zip"]


def test_slugs_of_paths_are_no_way_back() -> None:
    assert "srv-geheim" in slug("dir:/srv/geheim"), "the test above looks for it"


def test_texts_of_tables_are_changed_too() -> None:
    redaction = redact.Redaction(frozenset({"wolpertinger"}), frozenset(), {}, {})
    out = io.BytesIO()
    pq.write_table(pa.table({"t_s": [1.0], "device": ["wolpertinger-data"]}), out, compression="zstd")
    table = pq.ParquetFile(io.BytesIO(redaction.member("x.parquet", out.getvalue()))).read()
    assert table.column("device").to_pylist() == ["host-1-data"]


def test_hosts_of_power_cuts_and_those_that_never_answered_are_taken_out(tmp_path: Path) -> None:
    stacks = tuple(parse_stack(text) for text in ("ext4", "xfs"))
    hosts = (f"ssh://waltraud@{HOST}", "ssh://root@nie-erreicht")
    campaign = crash_campaign(Campaign(name="c", hosts=hosts, stacks=stacks))
    with CampaignDirectory.create_or_open(tmp_path / "out", campaign, "crash") as directory:
        write_crash(directory, "ext4", verdict="held", states=2)
    facts = tmp_path / "out" / "crash" / "ext4-0" / "facts.json"
    told = {"name": "zweites.example.org", "checked": {"machine id": MACHINE}, "told": {"link": "2001:db8::7 12:30:00"}}
    facts.write_text(json.dumps({**json.loads(facts.read_text()), **told}))
    done = CliRunner().invoke(app, ["bundle", str(tmp_path / "out"), "--redact", "--out", str(tmp_path / "b.zip")])
    assert done.exit_code == 0, done.output
    everything = b"".join(content for _, content in contents(tmp_path / "b.zip")).decode()
    for name in ("wolpertinger", "waltraud", "nie-erreicht", "zweites", MACHINE, "2001:db8"):
        assert name not in everything
    assert "12:30:00" in everything
    assert [c.found.verdict for c in read(tmp_path / "b.zip").crashes] == ["held"]


def test_machines_of_a_dask_cluster_are_taken_out() -> None:
    campaign = Campaign(name="c", stacks=(parse_stack("ext4"),), hosts=('dask:{"ssh": ["waltraud@alpha", "beta:22"]}',))
    asked = {name for host in redact._asked_hosts(campaign) for name in redact._host_parts(host)}
    assert asked == {"waltraud", "alpha", "beta"}


def test_hosts_of_a_clusters_nodes_are_taken_out(tmp_path: Path) -> None:
    text = f"cluster(2,address=10.1.2.3)/tmpfs@standby1.host='ssh://waltraud@{HOST}'@standby1.address=10.1.2.4"
    stack = parse_stack(text.replace("'", '"')).model_copy(update={"name": "far"})
    campaign = Campaign(name="c", stacks=(stack,), workload=Workload(scale=(1,), clients=(2,), duration=3.0))
    with CampaignDirectory.create_or_open(tmp_path / "out", campaign) as directory:
        for trial in block_trials(campaign, 0, ["far"]):
            _record(directory, campaign, trial)
    (facts,) = (tmp_path / "out" / "trials").glob("*/facts.json")
    told = json.loads(facts.read_text())
    told["checked"][f"machine id of ssh://waltraud@{HOST}"] = "0123456789abcdef"
    facts.write_text(json.dumps(told))
    done = CliRunner().invoke(app, ["bundle", str(tmp_path / "out"), "--redact", "--out", str(tmp_path / "b.zip")])
    assert done.exit_code == 0, done.output
    everything = b"".join(content for _, content in contents(tmp_path / "b.zip")).decode(errors="replace")
    for name in ("wolpertinger", "waltraud", "10.1.2.", "0123456789abcdef"):
        assert name not in everything
    (again,) = read(tmp_path / "b.zip").campaign.stacks
    assert len(again.far_hosts) == 1


def test_a_folder_that_is_a_link_is_not_followed(plain: Path, tmp_path: Path) -> None:
    """Of no trial, of all trials, of one trial, of a part of one, of what an import keeps."""
    secrets = tmp_path / "secrets"
    shutil.copytree(plain, secrets)
    (secrets / "id_ed25519").write_text("SECRET")
    (secrets / "x.json").write_text('"SECRET"')
    stray = shutil.copytree(plain, tmp_path / "stray")
    (stray / "trials" / "zz").symlink_to(secrets)
    for at, redaction in enumerate((None, redaction_of(read(stray), []))):
        write_record(tmp_path / f"{at}.zip", read(stray), redaction)
        assert not [name for name, content in contents(tmp_path / f"{at}.zip") if b"SECRET" in content]
    first = sorted((plain / "trials").iterdir())[0].name
    for linked in ("source", "trials", f"trials/{first}", f"trials/{first}/cells"):
        directory = shutil.copytree(plain, tmp_path / f"link-{linked.replace('/', '-')}")
        shutil.rmtree(directory / linked, ignore_errors=True)
        (directory / linked).symlink_to(plain / linked if (plain / linked).exists() else secrets)
        with pytest.raises(UsageError, match="is a link"):
            write_record(tmp_path / "never.zip", read(directory))


def test_a_hard_link_to_a_file_of_another_user_is_refused(plain: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(plain, tmp_path / "copied")
    if os.getuid() != 0:
        pytest.skip("only root makes files of others")
    other = tmp_path / "of-another"
    other.write_text("SECRET")
    os.chown(other, 65534, 65534)
    os.link(other, sorted((directory / "trials").iterdir())[0] / "raw" / "x")
    with pytest.raises(UsageError, match="hard link to a file of another user"):
        write_record(tmp_path / "b.zip", read(directory))


def test_a_trial_that_was_not_read_is_not_bundled(plain: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(plain, tmp_path / "copied")
    broken = sorted((directory / "trials").iterdir())[0]
    (broken / "verdict.json").write_text("SECRET")
    write_record(tmp_path / "b.zip", read(directory))
    assert not [name for name, _ in contents(tmp_path / "b.zip") if broken.name in name]


SEEDS = {
    "volume": "/dev/mapper/vgkunde-daten7 and vgkunde-daten7",
    "group": "/dev/vggeheim/lvgeheim",
    "mac": "52:54:00:ab:cd:ef or 52-54-00-AB-CD-EF",
    "partition": "PARTUUID=1a2b3c4d-01",
    "fat": "UUID=7F3A-91BC",
    "address": "ip-10-23-45-67 and ip-10-23-45-68.eu-central-1.compute.internal",
    "neighbour": "nachbar.example.org beside wolpertinger.kunde.example",
    "machine": "machine 0123456789abcdef0123456789abcdef",
    "serial": "serial: WD-WX11A2B3C4D5, again WD-WX11A2B3C4D5",
    "disk": "/dev/disk/by-id/ata-WDC_WD40_ZR9Q8W7E6 again ZR9Q8W7E6",
}
SEEDED = (
    "vgkunde", "daten7", "vggeheim", "lvgeheim", "52:54", "52-54", "1a2b3c4d", "7F3A", "10-23-45", "eu-central",
    "nachbar", "example.org", "kunde.example", "0123456789abcdef", "WX11A2B3C4D5", "ZR9Q8W7E6", "SECRETCUSTOMER",
)  # fmt: skip


def _seeded(value: object, seed: str) -> object:
    """With the seed in every string and behind every key."""
    if isinstance(value, str):
        return f"{value} {seed}"
    if isinstance(value, list):
        return [_seeded(one, seed) for one in value]
    if isinstance(value, dict):
        return {key if key == "note" else f"{key} {seed}": _seeded(one, seed) for key, one in value.items()}
    return value


@pytest.mark.parametrize("kind", SEEDS)
def test_no_string_of_a_record_keeps_a_name(private: Path, kind: str) -> None:
    """One of each kind is in every string, key and cell of a table of every file that is bundled."""
    seed = SEEDS[kind]
    (facts,) = sorted((private / "trials").glob("b00*/facts.json"))[:1]
    value = json.loads(facts.read_text())
    value["told"]["seed"] = seed
    facts.write_text(json.dumps(value))
    data = read(private)
    redaction = redaction_of(data, [])
    names = [name for name in bundled_names(data, redacted=True) if name.endswith(".json")]
    for name in names:
        seeded = _seeded(json.loads((private / name).read_bytes()), seed)
        content = redaction.member(name, json.dumps(seeded).encode()).decode()
        assert [word for word in SEEDED if word in content] == [], name
    assert [word for word in SEEDED if word in redaction.text(seed)] == []


def test_a_redacted_bundle_keeps_no_name_and_no_note(private: Path, tmp_path: Path) -> None:
    path = private / "campaign.json"
    value = json.loads(path.read_text())
    value["campaign"]["note"] = "measured for SECRETCUSTOMER"
    path.write_text(json.dumps(value))
    everything = "; ".join(SEEDS.values())
    for verdict in private.glob("trials/*/verdict.json"):
        value = json.loads(verdict.read_text())
        value["reason"] = everything
        verdict.write_text(json.dumps(value))
    for name, content in contents_of_bundle(private, tmp_path / "r.zip", "--redact"):
        assert [word for word in SEEDED if word.encode() in content or word in name] == [], name
