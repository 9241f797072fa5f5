"""Servers, checksums, client machines and networks that differ are named by every claim on the stacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pgstrata.analyze.campaign.caveats import BY_SOCKET, surroundings_of, unlike
from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.findings import Findings
from pgstrata.record.reader import CampaignData, TrialData, read
from pgstrata.record.schema import SettingRecord
from pgstrata.report.sentences.answer import answer
from pgstrata.report.sentences.statements import comparison_words, unlike_words
from pgstrata.spec.notation.stack import parse_stack
from pgstrata_fake.campaigns import Shape, write_campaign


def fake(folder: Path) -> CampaignData:
    return read(write_campaign(folder / "c", Shape(stacks=("ext4", "xfs"), blocks=6)))


def with_checksums(trial: TrialData) -> TrialData:
    own = SettingRecord(name="data_checksums", setting="on" if trial.trial.stack == "xfs" else "off", source="default")
    others = tuple(s for s in trial.settings if s.name != "data_checksums")
    return replace(trial, settings=(*others, own))


def sentences(findings: Findings, data: CampaignData) -> list[str]:
    told = [comparison_words(c) for c in findings.comparisons if c.margin is not None]
    return [*told, answer(data, findings, lambda minutes, blocks: "run")]


def test_a_verdict_names_other_checksums(tmp_path: Path) -> None:
    data = fake(tmp_path)
    assert not any("also differ" in text for text in sentences(judge(data), data))
    data = replace(data, trials=tuple(map(with_checksums, data.trials)))
    told = sentences(judge(data), data)
    assert told
    for text in told:
        assert text.replace("*", "").replace("`", "").count("They also differ in data checksums (") == 1, text


def test_server_build_and_network_are_surroundings(tmp_path: Path) -> None:
    trial = fake(tmp_path).trials[0]
    assert trial.facts is not None
    checked = {**trial.facts.checked, "PostgreSQL version": "18.1 (system)", "PostgreSQL program": "SHA-256 ab"}
    there = replace(trial, facts=trial.facts.model_copy(update={"checked": checked}))
    alone = surroundings_of([there])
    assert {what: alone[what] for what in ("PostgreSQL version", "PostgreSQL program")} == {
        "PostgreSQL version": "18.1 (system)",
        "PostgreSQL program": "SHA-256 ab",
    }
    cluster = surroundings_of([replace(there, stack=parse_stack("cluster(2,delay_ms=5)/ext4"))])
    found = unlike({"a": alone, "b": alone, "c": cluster}, ("a", "b", "c"))
    far = "client on a node of its own, 5 ms each way"
    assert found == {"client machine and network": {"a": BY_SOCKET, "b": BY_SOCKET, "c": far}}
    assert unlike_words(found) == (
        f" **They also differ in** client machine and network (`a` and `b` {BY_SOCKET}, `c` {far})."
    )
    assert unlike({"a": alone, "b": alone, "c": cluster}, ("a", "b")) == {}
    assert unlike({"a": alone, "b": {}}, ("a", "b")) == {}
