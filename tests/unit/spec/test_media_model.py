"""Models of media in files of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgstrata.errors import UsageError
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.crash import named_stacks
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.layers.media import MediaDevice
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.spec.quick import quick_campaign

SUPPLIED = Path(__file__).parents[3] / "crates" / "strata-disk" / "models" / "nvme.toml"
MINE = SUPPLIED.read_text().replace('"nvme"', '"mine"').strip()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.toml").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def media_in(campaign: Campaign) -> list[MediaDevice]:
    volumes = [volume for stack in campaign.stacks for volume in stack.volumes.values()]
    return [d for volume in volumes for d in volume.devices if isinstance(d, MediaDevice)]


CAMPAIGN = """
stacks:
  a: {data: {device: {media: ./mine.toml}, fs: ext4}}
  b: media(./mine.toml,2)/btrfs(raid1)
  c: zfs+log(media(mine.toml,size=2G))@wal=media(./mine.toml)/xfs
  d: cluster(2)/ext4@standby=media(./mine.toml)/ext4
lab:
  disks: {log: {media: ./mine.toml, size: 2GiB}}
"""


def test_a_model_file_stands_wherever_a_models_name_does(folder: Path) -> None:
    (folder / "x.yaml").write_text(CAMPAIGN)
    campaign = load_campaign(folder / "x.yaml")
    assert [(d.model, d.definition) for d in media_in(campaign)] == [("mine", MINE)] * 5
    assert (campaign.lab.disks["log"].media, campaign.lab.disks["log"].definition) == ("mine", MINE)
    quick = quick_campaign(["ext4"], lambda *_: 1.0, minutes=10, media="./mine.toml")
    assert [(d.model, d.definition) for d in media_in(quick)] == [("mine", MINE)]
    assert [(d.model, d.definition) for d in media_in(named_stacks(["media(./mine.toml)/ext4"]))] == [("mine", MINE)]


def test_the_record_of_a_campaign_holds_the_model(folder: Path) -> None:
    (folder / "x.yaml").write_text(CAMPAIGN)
    campaign = load_campaign(folder / "x.yaml")
    (folder / "mine.toml").unlink()
    again = Campaign.model_validate_json(campaign.model_dump_json())
    assert again == campaign
    with pytest.raises(UsageError, match=r"file \./mine.toml does not exist"):
        load_campaign(folder / "x.yaml")


def test_a_file_that_has_changed_makes_another_campaign(folder: Path) -> None:
    (folder / "x.yaml").write_text(CAMPAIGN)
    with CampaignDirectory.create_or_open(folder / "out", load_campaign(folder / "x.yaml"), "run"):
        pass
    (folder / "mine.toml").write_text(MINE.replace("value = 85", "value = 86"))
    with pytest.raises(UsageError, match="holds another campaign: lab, stacks differ"):
        CampaignDirectory.create_or_open(folder / "out", load_campaign(folder / "x.yaml"), "run")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "is no TOML"),
        ("name = 'mine'", "is no model: kind"),
        (SUPPLIED.read_text(), "has the name nvme, which means something else"),
        (MINE.replace('"mine"', '"none"'), "has the name none"),
        (MINE.replace('"mine"', '"25"'), "is no model: name"),
        (MINE.replace('"flash"', '"tape"'), "is no model: kind"),
        (MINE + '\nx = { value = "1", source = "y" }', "is no model: parameters.x.value"),
        (MINE + "\nx = { value = nan, source = 'y' }", "is no model: parameters.x.value"),
        (MINE + "\nx = { value = 1, source = '' }", "is no model: parameters.x.source"),
        (" " * 100_001, "more than 100000 characters"),
    ],
)
def test_a_file_that_is_no_model_is_refused_with_what_is_wrong_and_its_line(
    folder: Path, text: str, message: str
) -> None:
    (folder / "mine.toml").write_text(text)
    (folder / "x.yaml").write_text("stacks:\n  a:\n    data: {device: {media: ./mine.toml}, fs: ext4}\n")
    with pytest.raises(UsageError, match=message) as error:
        load_campaign(folder / "x.yaml")
    assert "x.yaml:3: stacks.a.data.device" in str(error.value)


def test_two_unlike_models_of_one_name_are_refused(folder: Path) -> None:
    (folder / "other.toml").write_text(MINE.replace("volatile_cache = false", "volatile_cache = true"))
    (folder / "x.yaml").write_text("stacks: [media(./mine.toml)/ext4, media(./other.toml)/ext4]\n")
    with pytest.raises(UsageError, match="two unlike models are called 'mine'"):
        load_campaign(folder / "x.yaml")
    lab = "lab: {disks: {a: {media: ./mine.toml}, b: {media: ./other.toml}}}"
    (folder / "x.yaml").write_text(f"stacks: [ext4]\n{lab}\n")
    with pytest.raises(UsageError, match="two unlike models are called 'mine'"):
        load_campaign(folder / "x.yaml")


def test_a_name_that_is_neither_is_refused_with_both(folder: Path) -> None:
    with pytest.raises(UsageError) as error:
        parse_stack("media(hdd-15000)/ext4")
    assert "unknown model 'hdd-15000'" in error.value.message
    assert "did you mean hdd-5400?, or a file: ./mine.toml" in error.value.hint
    with pytest.raises(UsageError, match=r"file \./none.toml does not exist"):
        named_stacks(["media(./none.toml)/ext4"])


def test_a_definition_belongs_to_its_name() -> None:
    with pytest.raises(ValueError, match="of one called 'mine'"):
        MediaDevice(model="other", definition=MINE)
