"""The story of a failing state: its words, its picture, and where they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crashed import write_crash
from pgstrata.analyze.campaign.judge import judge
from pgstrata.record.crash import CutEvent, LostPlace, MinimalRecord, MissingCommit
from pgstrata.record.reader import CampaignData, read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.report.html import write_html
from pgstrata.report.markdown import render_markdown
from pgstrata.report.sentences import crash
from pgstrata.report.sentences.crash_timeline import Story, draw_cut
from pgstrata.report.terminal import render_terminal
from pgstrata.spec.crash import crash_campaign, named_stacks

TORN = LostPlace(
    seq=1190, completed=1195, disk="data-0", offset_bytes=81920, length_bytes=1536, written_bytes=8192,
    file="base/5/16402", file_offset_bytes=98816, relation="ledger.account",
)  # fmt: skip
COMMIT = MissingCommit(session=3, number=17, began=1150, acknowledged=1172, flushes=0)
EVENTS = (
    CutEvent(seq=1160, until=1165, what="flush"),
    CutEvent(seq=1172, until=1172, what="acknowledgement", lost=True),
    CutEvent(seq=1190, until=1195, what="write", lost=True),
    CutEvent(seq=1199, what="write"),
)


def minimal(**other: Any) -> MinimalRecord:
    given = {
        "of": "1.17", "state": "1.17-minimal", "cut": 1200, "digest": "0a", "acknowledged": 163, "verdict": "corrupt",
        "reason": "ERROR:  invalid page in block 12 of relation base/5/16402", "lost": 0, "tried": 61, "proven": True,
        "blocks_before": 240, "places": (TORN,), "disk": "data-0", "last_flush": 1160, "timeline": EVENTS,
    }  # fmt: skip
    return MinimalRecord.model_validate(given | other)


def told(folder: Path, stack: str, state: MinimalRecord, **found: Any) -> tuple[CampaignData, Story]:
    campaign = crash_campaign(named_stacks([stack]))
    with CampaignDirectory.create_or_open(folder / "out", campaign, "crash") as directory:
        write_crash(directory, stack, minimal=state, verdict=state.verdict, states=2, corrupt=1, **found)
    data = read(folder / "out")
    return data, crash.stories(data, crash.tested_stacks(judge(data)), "DIR")[stack]


def test_a_torn_page_is_told_with_its_relation_and_the_setting(tmp_path: Path) -> None:
    _, story = told(tmp_path, "ext4@full_page_writes=off", minimal())
    assert story.title == "How ext4@full_page_writes=off is damaged"
    assert story.before == (
        "Power is lost after event 1,200. By then PostgreSQL had acknowledged 163 transactions.",
        "The last flush of disk data-0 that was done by then was asked for at event 1,160: what it had written before "
        "that is durable, what came later may be lost in any part.",
        "All that had been given to the disk is there, except for 3 blocks of 512 bytes of 1 write:",
    )
    assert story.places == (
        "ledger.account (file base/5/16402), block 12: 1,536 bytes are as they were before the write of event 1,190 "
        "(8,192 bytes, done at event 1,195)",
    )
    assert story.after == (
        "What is found then: ERROR: invalid page in block 12 of relation base/5/16402.",
        "Its configuration promises no better: it loses on power loss. full_page_writes=off over ext4, where "
        "blocks of a page can be lost alone: torn pages.",
        "This state was made from state 1.17, which lacks 240 blocks: with any one of these blocks back it does not "
        "fail in this way; 61 states tried.",
    )
    assert story.command == "pgstrata crash replay DIR/crash/ext4-full_page_writes-off-0/1.17-minimal"


def test_one_block_is_told_as_one(tmp_path: Path) -> None:
    one = TORN.model_copy(update={"length_bytes": 512})
    _, story = told(tmp_path, "ext4@full_page_writes=off", minimal(places=(one,)))
    assert story.before[-1].endswith("except for 1 block of 512 bytes of 1 write:")
    assert any("with this block back it does not fail" in line for line in story.after)


def test_a_fault_is_named_and_no_setting_is_blamed(tmp_path: Path) -> None:
    _, story = told(tmp_path, "ext4@data_sync_retry=on", minimal(), request={"fault": "write-error"})
    assert any("(fault write-error)" in line for line in story.after)
    assert not any("no setting of it explains" in line for line in story.after)


def test_a_commit_that_was_never_written_is_told_without_lost_writes(tmp_path: Path) -> None:
    state = minimal(verdict="lost", reason="1 x", lost=4, places=(), missing=(COMMIT,), last_flush=None)
    _, story = told(tmp_path, "ext4@synchronous_commit=off", state)
    text = "\n".join(story.lines)
    assert "No flush of disk data-0 was done by then" in text
    assert "had not been written when it was acknowledged" in text
    assert "4 acknowledged transactions cannot be read from this state." in text
    assert "number 17 of session 3: begun after event 1,150, acknowledged at event 1,172. No flush of a disk" in text
    assert "needs no lost write" in text
    assert "x." not in story.after


def test_of_several_disks_nothing_is_said_about_flushes_of_one(tmp_path: Path) -> None:
    _, story = told(tmp_path, "ext4", minimal(disk="", last_flush=None))
    assert not any("flush of disk" in line for line in story.lines)


def test_a_lying_disk_is_blamed_and_not_the_stack(tmp_path: Path) -> None:
    state = minimal(verdict="lost", lost=1, missing=(COMMIT.model_copy(update={"flushes": 2}),), proven=False)
    _, story = told(tmp_path, "ext4", state, request={"ignore_flushes": "all"})
    text = "\n".join(story.lines)
    assert "is durable" not in text
    assert "2 flushes came in between, and the disk ignored flushes." in text
    assert "The disk was made to ignore all flushes" in text
    assert "promises" not in text
    assert "Fewer blocks may be enough: the search ended after 61 states." in text


def test_a_promise_that_nothing_explains_is_said_to_be_so(tmp_path: Path) -> None:
    _, story = told(tmp_path, "ext4", minimal())
    assert "Its configuration promises to survive power loss: no setting of it explains this." in story.after


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"file": "", "relation": ""}, "disk data-0, byte 81,920, in no file: the filesystem's own metadata"),
        ({"file": None, "relation": ""}, "disk data-0, byte 81,920, of which the file is not known"),
        ({"file": "global/pg_control", "file_offset_bytes": 0, "relation": ""}, "global/pg_control, byte 0"),
        ({"file": "pg_wal/000000010000000000000003", "relation": ""}, "pg_wal/000000010000000000000003, block 12"),
        (
            {"length_bytes": 8192, "completed": None},
            "blocks 12 to 13: nothing of the write of event 1,190 is there (8.0 KiB, not",
        ),
    ],
)
def test_every_place_has_words(place: dict[str, Any], words: str, tmp_path: Path) -> None:
    _, story = told(tmp_path, "ext4", minimal(places=(TORN.model_copy(update=place),)))
    assert words in story.places[0]


def test_many_places_are_counted(tmp_path: Path) -> None:
    places = tuple(TORN.model_copy(update={"seq": 1100 + n}) for n in range(9))
    _, story = told(tmp_path, "ext4", minimal(places=places))
    assert len(story.places) == 7
    assert story.places[-1] == "and 3 further places"


def test_the_picture_lies_within_its_frame_and_says_the_same() -> None:
    picture = draw_cut(minimal())
    assert picture is not None
    bars = {strip.name: strip.bars for strip in picture.strips}
    assert list(bars) == ["Acknowledged", "Writes", "Flushes"]
    assert all(bar.x >= 0 and bar.x + bar.width <= 1000.1 for strip in bars.values() for bar in strip)
    assert [bar.lost for bar in bars["Writes"]] == [True, False]
    assert bars["Writes"][1].x + bars["Writes"][1].width == pytest.approx(1000)
    assert picture.words == (
        "Events 1,160 to 1,200, the cut: 1 acknowledgement, 1 of them of missing transactions; 2 writes, 1 of them "
        "lost in full or in part; 1 flush."
    )
    assert draw_cut(minimal(timeline=())) is None


def test_page_terminal_and_markdown_tell_it_and_escape_it(tmp_path: Path) -> None:
    evil = minimal(reason="<script>x</script>", places=(TORN.model_copy(update={"relation": "<b>r</b>"}),))
    data, story = told(tmp_path, "ext4@full_page_writes=off", evil)
    findings = judge(data)
    page = write_html(data, findings, tmp_path / "page.html").read_text()
    assert "&lt;script&gt;x" in page
    assert "<b>r" not in page
    assert story.command in page
    assert 'role="img" aria-label="Events 1,160 to 1,200, the cut' in page
    terminal = " ".join(render_terminal(data, findings).split())
    assert f"pgstrata crash replay {tmp_path}/out/crash/ext4-full_page_writes-off-0/1.17-minimal" in terminal
    assert "Power is lost after event 1,200." in terminal
    markdown = render_markdown(data, findings)
    assert "Power is lost after event 1,200." in markdown
    assert "<b>" not in markdown
