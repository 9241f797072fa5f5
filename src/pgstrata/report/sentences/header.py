"""The head of every report: workload, host and software."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pgstrata.analyze.findings import Findings
from pgstrata.record.crash import StateVerdict
from pgstrata.record.reader import CampaignData
from pgstrata.record.schema import CellResult, HostFacts
from pgstrata.report.sentences.figures import NOT_KNOWN, render_count, render_number
from pgstrata.spec.layers.kind import MEMORY
from pgstrata.spec.printable import summarise_names
from pgstrata.spec.units import render_duration

SERVER = "PostgreSQL version"
"""The checked fact with the server version of a trial."""
_SCRATCH = "the scratch folder"


@dataclass(frozen=True)
class Head:
    """Lines to read before any figure."""

    name: str
    facts: dict[str, str]
    """Texts by title, in reading order; without those that the campaign has not."""
    labels: tuple[str, ...]
    notices: tuple[str, ...]


@dataclass(frozen=True)
class Incident:
    """A trial that does not count, or a stack that could not be built."""

    what: str
    stack: str
    trial: str | None
    block: int | None
    reason: str
    hint: str = ""


def report_head(data: CampaignData, findings: Findings) -> Head:
    """Return the head with the facts of the first trial that has some; the findings' own host facts take precedence."""
    campaign = findings.campaign
    facts = data.first_facts
    told = " ".join(campaign.notices)
    labels = tuple(dict.fromkeys(label for s in findings.stacks for label in s.labels if label not in told))
    shown = {
        "Medium": _medium(findings, facts),
        "Baseline of the scratch folder": _baseline(data),
        "Host": _host(findings, facts),
        "PostgreSQL": _servers(data) or campaign.postgres_version or NOT_KNOWN,
        "Measured": "" if data.crashes and not data.trials else _measured(data),
        "Power cuts": _power_cuts(data),
        "Lost nodes": _lost_nodes(data),
        "Machine time": render_duration(campaign.machine_time_s) if campaign.machine_time_s else NOT_KNOWN,
    }
    known = {title: text for title, text in shown.items() if text}
    return Head(name=campaign.name, facts=known, labels=labels, notices=campaign.notices)


def _baseline(data: CampaignData) -> str:
    """Return the rates, with a note on stacks elsewhere: rates of real and modelled disks were not measured."""
    line = "; ".join(f"{what} {rate}" for what, rate in rates(data.baselines[-1])) if data.baselines else ""
    volumes = [volume for stack in data.campaign.stacks for volume in stack.volumes.values()]
    places = {v.fs.lies_on(_path) or v.device.lies_on(_SCRATCH, _path) for v in volumes} - {MEMORY}
    if not line or places <= {_SCRATCH}:
        return line
    whose = "on which not every stack lies" if _SCRATCH in places else "on which no stack lies"
    return f"{line}; of the host's scratch folder, {whose}"


_RATES = (
    ("flushes_per_s", "flushes", 1.0, "a second at QD1 ({})"),
    ("random_reads_per_s", "random reads", 1.0, "a second at QD32 (8 KiB)"),
    ("random_writes_per_s", "random writes", 1.0, "a second at QD32 (8 KiB)"),
    ("sequential_read_bytes_per_s", "sequential reads", 1e6, "MB/s"),
    ("sequential_write_bytes_per_s", "sequential writes", 1e6, "MB/s"),
)
"""Field of a baseline, its name, its unit and the words for that."""


def rates(found: Any) -> Iterator[tuple[str, str]]:
    """Yield name and value of the rates that a baseline has, recorded or just measured; the flushes first."""
    for field, what, unit, tail in _RATES:
        if (rate := getattr(found, field)) is not None:
            yield what, f"{render_number(rate / unit)} {tail.format(found.flushes_by)}"


def _path(path: str, loop: bool) -> str:
    return path


def _medium(findings: Findings, facts: HostFacts | None) -> str:
    told = findings.campaign.host.get("medium")
    return str(told or (facts.medium if facts else "") or NOT_KNOWN)


def _host(findings: Findings, facts: HostFacts | None) -> str:
    hosts = {row.host for found in findings.hosts for row in found.rows}
    if hosts:
        return f"{len(hosts)} hosts; facts are those of the first trial"
    name = str(findings.campaign.host.get("name") or (facts.name if facts else NOT_KNOWN))
    kind = str(findings.campaign.host.get("kind") or (facts.kind if facts else ""))
    return f"{name} (emulated)" if kind == "emulated" else name


def _servers(data: CampaignData) -> str:
    """Return the server of each stack if there are several servers; else the name of the only one."""
    stacks: dict[str, dict[str, None]] = {}
    for trial in data.every_trial:
        version = trial.facts.checked.get(SERVER) if trial.facts else None
        if version is not None:
            stacks.setdefault(version, {})[trial.trial.stack] = None
    if len(stacks) < 2:
        return next(iter(stacks), "")
    return "; ".join(f"{version}: {summarise_names(list(names))}" for version, names in stacks.items())


def _measured(data: CampaignData) -> str:
    blocks = {t.trial.block for t in data.trials if t.valid}
    results = [cell.result for cell in data.cells()]
    stacks = len({t.trial.stack for t in data.trials if t.valid})
    rounds = (render_count(len(blocks), "block"),) if data.record.paired else ()
    texts = (render_count(stacks, "stack"), *rounds, *runs_measured(results))
    lost = (f"{render_count(len(data.unreadable), 'trial')} could not be read",) if data.unreadable else ()
    return ", ".join((*texts, *lost))


def runs_measured(results: Sequence[CellResult]) -> Iterator[str]:
    """Yield the number of runs with their usual length; of slices the turns, and the whole runs beside them."""
    sliced = [result for result in results if result.slices]
    wholes = [result.whole for result in sliced if result.whole is not None]
    if sliced:
        count, each_s = len(sliced[0].slices), sliced[0].duration_s / len(sliced[0].slices)
        yield f"{render_count(len(sliced), 'build')} with {count} turns of {render_duration(each_s)} each"
    whole = [*(result for result in results if not result.slices), *wholes]
    if whole or not sliced:
        durations = sorted(result.duration_s for result in whole)
        length = f" of {render_duration(durations[len(durations) // 2])}" if durations and durations[-1] else ""
        yield render_count(len(whole), "whole run" if sliced else "run") + length


def _power_cuts(data: CampaignData) -> str:
    found = [crash.found for crash in data.crashes if crash.verdict.status != "unsupported"]
    tested = [crash for crash in found if crash.cluster is None]
    names = {
        verdict: [crash.stack for crash in tested if crash.verdict == verdict] for verdict in get_args(StateVerdict)
    }
    by_verdict = (f"{verdict}: {', '.join(stacks)}" for verdict, stacks in names.items() if stacks)
    return f"{'; '.join(by_verdict)} ({render_count(sum(c.states for c in tested), 'state')})" if tested else ""


def _lost_nodes(data: CampaignData) -> str:
    failures = [crash.found.states for crash in data.crashes if crash.found.cluster is not None]
    return f"{render_count(len(failures), 'cluster')}, {render_count(sum(failures), 'failure')}" if failures else ""


def incidents(data: CampaignData, findings: Findings) -> tuple[Incident, ...]:
    """Return every failure, exclusion and unsupported stack with its reason, each once."""
    found = {
        t.id: Incident(t.verdict.status, t.trial.stack, t.id, t.trial.block, t.verdict.reason, t.verdict.hint)
        for t in data.trials
        if t.verdict.status != "ok"
    }
    for stack in findings.stacks:
        for excluded in stack.excluded:
            found.setdefault(
                excluded.trial,
                Incident("excluded", stack.name, excluded.trial, excluded.block, excluded.reason),
            )
    failed = ((c.folder, c.trial.stack, c.verdict) for c in data.crashes if c.verdict.status == "failed")
    found |= {
        folder: Incident(f"crash trial {verdict.status}", stack, None, None, verdict.reason, verdict.hint)
        for folder, stack, verdict in failed
    }
    damaged = (Incident("unreadable", "", t.id, None, f"{t.id}: {t.reason}", t.hint) for t in data.unreadable)
    unsupported = {s.name: Incident("unsupported", s.name, None, None, s.unsupported) for s in findings.stacks
                   if s.unsupported is not None}  # fmt: skip
    named = {i.stack for i in found.values() if i.what == "unsupported"}
    return (*found.values(), *damaged, *(i for name, i in unsupported.items() if name not in named))
