"""Sentences on session time: what is named, what is left out, in JSON and terminal too."""

from __future__ import annotations

import json

import pytest

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.finding import Cause, TimeKind
from pgstrata.analyze.findings import EventTime, FigurePair, Findings, StackProfile, TimePart, Why, WhyPart
from pgstrata.record.reader import CampaignData, read
from pgstrata.report.pictures.drawing import Sample, draw
from pgstrata.report.render import render_json
from pgstrata.report.sentences.figures import percent, render_number
from pgstrata.report.sentences.why import (
    KIND_WORDS,
    pair_sentences,
    profile_words,
    profiles_of,
    terminal_words,
    time_view,
    why_words,
)
from pgstrata.report.terminal import render_terminal
from pgstrata_fake.campaigns import Shape, write_campaign


def part(kind: TimeKind, ms: float, whole_ms: float, *events: str) -> TimePart:
    named = tuple(EventTime(name=e, ms=ms / len(events), share=ms / whole_ms / len(events)) for e in events)
    return TimePart(kind=kind, ms=ms, low=None, high=None, share=ms / whole_ms, events=named)


def profile(name: str, wal_ms: float, locks_ms: float = 0.3) -> StackProfile:
    whole = wal_ms + locks_ms + 1.0
    parts = (
        part("wal", wal_ms, whole, "WALSync", "WALWrite"),
        part("locks", locks_ms, whole, "tuple"),
        part("running", 1.0, whole, "Running"),
    )
    behind = parts[0] if locks_ms > wal_ms else None
    return StackProfile(name=name, cell="c", runs=5, time_ms=whole, parts=parts, figures={}, behind_locks=behind)


def why(cause: Cause | None, *parts: WhyPart, evidence: tuple[FigurePair, ...] = ()) -> Why:
    return Why(
        a="xfs", b="ext4", cell="c", a_ms=4.3, b_ms=3.3, difference_ms=1.0, low=0.9, high=1.1, p=0.001,
        beyond_noise=cause is not None, pairs=5, tests=4, cause=cause, parts=parts, evidence=evidence,
    )  # fmt: skip


def why_part(kind: TimeKind, share: float, *, beyond: bool = True) -> WhyPart:
    return WhyPart(
        kind=kind, cause="storage", difference_ms=share, low=None, high=None, p=0.001, beyond_noise=beyond,
        share=share, a_share=0.7, b_share=0.61,
    )  # fmt: skip


PROFILES = {"xfs": profile("xfs", 3.0), "ext4": profile("ext4", 2.0)}


def test_a_sentence_with_its_evidence() -> None:
    flushes = FigurePair(name="flushes_per_transaction", a=1.9, b=1.4)
    assert why_words(why("storage", why_part("wal", 0.95), evidence=(flushes,)), PROFILES) == (
        "`xfs` takes 1 ms more session time a transaction than `ext4` (4.30 against 3.30 ms), "
        "most of it in **storage**: "
        "writing and flushing WAL +0.950 ms (70 % of session time against 61 %; mostly WALSync); "
        "flushes a transaction: 1.90 against 1.40."
    )


def test_parts_within_the_noise_and_small_ones_are_not_named() -> None:
    words = why_words(
        why("storage", why_part("wal", 0.9), why_part("locks", 0.05), why_part("client", 0.5, beyond=False)), PROFILES
    )
    assert KIND_WORDS["wal"] in words
    assert KIND_WORDS["locks"] not in words
    assert KIND_WORDS["client"] not in words


def test_nothing_that_explains_it_is_said_so() -> None:
    assert why_words(why("unexplained"), PROFILES).endswith("**not explained** by what was recorded.")
    assert why_words(why("unexplained", why_part("wal", 0.4, beyond=False)), PROFILES).endswith("was recorded.")
    assert why_words(why(None, why_part("wal", 0.9)), PROFILES) == (
        "`xfs` against `ext4`: no difference in session time a transaction beyond the noise between runs is shown "
        "(5 blocks)."
    )


@pytest.mark.parametrize(("share", "amount"), [(0.96, "96 %"), (1.05, "all")])
def test_what_most_was_recorded_as_is_said_where_the_blocks_are_too_few_to_prove_it(share: float, amount: str) -> None:
    assert why_words(why("unexplained", why_part("wal", share, beyond=False)), PROFILES) == (
        "`xfs` takes 1 ms more session time a transaction than `ext4` (4.30 against 3.30 ms), "
        f"{amount} of it recorded as writing and flushing WAL (mostly WALSync), "
        "which is not significant on its own in 5 blocks."
    )


def test_what_stands_behind_locks() -> None:
    profiles = {"xfs": profile("xfs", 1.5, 3.0), "ext4": profile("ext4", 1.5, 2.0)}
    words = why_words(why("locks", why_part("locks", 1.0)), profiles)
    assert "in waits for **locks**" in words
    assert "most were writing and flushing WAL (WALSync)" in words


def test_a_profile_in_words() -> None:
    assert profile_words(PROFILES["xfs"]) == (
        "`xfs` spends 4.30 ms of session time a transaction: 70 % writing and flushing WAL (WALSync, WALWrite), "
        "23 % running without a wait."
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[CampaignData, Findings]:
    directory = tmp_path_factory.mktemp("why") / "c"
    tps = {"ext4": 1000.0, "xfs": 2000.0}
    data = read(
        write_campaign(directory, Shape(stacks=("ext4", "xfs"), blocks=5, duration_s=30, base_tps=tps, incidents=False))
    )
    return data, judge(data)


def test_json_and_terminal_have_the_sentences(recorded: tuple[CampaignData, Findings]) -> None:
    data, findings = recorded
    value = json.loads(render_json(findings))
    (shown,) = value["whys"]
    assert (shown["a"], shown["b"], shown["cause"]) == ("ext4", "xfs", "storage")
    text = " ".join(render_terminal(data, findings).split())
    assert shown["sentence"].replace("`", "").replace("**", "") in text
    best = next(p for p in value["profiles"] if p["name"] == "xfs")
    assert best["sentence"].replace("`", "") in text


def test_the_page_has_every_time_and_figure(recorded: tuple[CampaignData, Findings]) -> None:
    data, findings = recorded
    (cell,) = findings.cells
    view = time_view(findings, cell)
    assert view is not None
    assert view.sentences == (why_words(findings.whys[0], profiles_of(findings, cell)),)
    times, each, meanwhile = view.tables
    assert [row.name for row in times.rows] == list(cell.ranking) == ["xfs", "ext4"]
    profiles = profiles_of(findings, cell)
    for table in view.tables:
        assert all(len(row.cells) + bool(row.whole) == len(table.titles) for row in table.rows)
    ours = times.rows[0]
    assert ours.whole == f"{render_number(profiles['xfs'].time_ms)} ms"
    assert [cell.interval for cell in ours.cells] == [percent(p.share) for p in profiles["xfs"].parts]
    assert each.titles[0] == "WAL"
    assert each.rows[0].cells[0].value == "1.9 KiB"
    assert meanwhile.rows[0].cells[meanwhile.titles.index("Processors the server used")].value == "0.900"
    drawn = draw(data, findings, Sample.of(data)).times
    assert len(drawn) == 2
    assert [sum(t.parts_ms.values()) for t in drawn] == pytest.approx([t.time_ms for t in drawn])


def test_pairs_that_do_not_differ_share_a_sentence() -> None:
    alike = [why(None), why(None).model_copy(update={"a": "ext4", "b": "xfs", "pairs": 3})]
    assert list(pair_sentences(alike, PROFILES)) == [
        "No difference in session time a transaction beyond the noise between runs is shown (3 blocks): "
        "`xfs` against `ext4`, `ext4` against `xfs`."
    ]
    assert list(pair_sentences(alike[:1], PROFILES)) == [why_words(alike[0], PROFILES)]


def test_what_was_not_recorded_has_no_column_and_no_section(recorded: tuple[CampaignData, Findings]) -> None:
    _, findings = recorded
    (cell,) = findings.cells
    bare = [p.model_copy(update={"figures": {}}) for p in findings.profiles]
    view = time_view(findings.model_copy(update={"profiles": tuple(bare)}), cell)
    assert view is not None
    assert len(view.tables) == 1
    assert time_view(findings.model_copy(update={"profiles": (), "whys": ()}), cell) is None


def test_a_terminal_shows_the_first_few(recorded: tuple[CampaignData, Findings]) -> None:
    _, findings = recorded
    (cell,) = findings.cells
    many = findings.model_copy(update={"whys": findings.whys * 9})
    assert len(list(terminal_words(many, cell))) == 4
    assert list(terminal_words(findings.model_copy(update={"profiles": (), "whys": ()}), cell)) == []
