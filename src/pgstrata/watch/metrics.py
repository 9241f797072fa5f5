"""Progress and verdict so far as OpenMetrics, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from pgstrata.analyze.findings import Findings
from pgstrata.watch.follow import Progress, Running

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(frozen=True, eq=False)
class _Snapshot:
    """Source of the values that a registry collects."""

    progress: Progress
    findings: Findings | None

    def collect(self) -> Iterator[Metric]:
        yield from _of_campaign(self.progress)
        yield from _of_running(self.progress)
        if self.findings is not None:
            yield from _of_findings(self.findings)


def render_metrics(progress: Progress, findings: Findings | None) -> bytes:
    """Return the page of `/metrics`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(progress, findings))
    return bytes(generate_latest(registry))


def _of_campaign(progress: Progress) -> Iterator[Metric]:
    info = InfoMetricFamily("pgstrata_campaign", "The campaign of the directory.")
    info.add_metric((), {"campaign": progress.name, "primary": progress.primary, "stage": progress.stage})
    yield info
    trials = GaugeMetricFamily("pgstrata_trials", "Finished trials.", labels=("stack", "status"))
    for stack, counts in progress.trials.items():
        for status, count in counts.items():
            trials.add_metric((stack, status), count)
    yield trials
    gauges = (
        ("campaign_running", "Whether a process runs the campaign.", float(progress.state == "running")),
        ("blocks", "Blocks with a finished trial.", float(progress.blocks)),
        ("block_trials", "Trials of the present block.", float(progress.block_trials)),
        ("block_trials_finished", "Finished ones of the present block.", float(progress.block_finished)),
        ("budget_left_seconds", "What is left of the time budget.", progress.budget_left_s),
        ("block_left_seconds", "Time that the block still takes, by the mean of the trials.", progress.block_left_s),
    )
    for name, text, value in gauges:
        if value is not None:
            yield GaugeMetricFamily(f"pgstrata_{name}", text, value=value)
    yield CounterMetricFamily("pgstrata_machine_time_seconds", "Of all finished trials.", value=progress.machine_time_s)
    yield CounterMetricFamily(
        "pgstrata_unreadable_event_lines", "Lines of events that are none.", value=progress.unreadable_lines
    )


def _of_running(progress: Progress) -> Iterator[Metric]:
    labels = ("host", "stack")
    steps = GaugeMetricFamily("pgstrata_step_seconds", "For how long the present step runs.", labels=(*labels, "step"))
    tps = GaugeMetricFamily("pgstrata_running_tps", "Transactions of the last second.", labels=labels)
    latency = GaugeMetricFamily("pgstrata_running_latency_seconds", "Mean latency of the last second.", labels=labels)
    for one in _by_labels(progress.running):
        steps.add_metric((one.host, one.stack, one.step), one.step_s)
        if one.seconds:
            last = one.seconds[-1]
            tps.add_metric((one.host, one.stack), last.tps)
            if last.latency_ms is not None:
                latency.add_metric((one.host, one.stack), last.latency_ms / 1000)
    yield from (steps, tps, latency)


def _by_labels(running: Iterable[Running]) -> Iterable[Running]:
    """Yield running trials with known labels, one per set of labels: Prometheus rejects a page with a duplicate
    series."""
    return {(one.host, one.stack, one.step): one for one in running if one.stack}.values()


def _of_findings(findings: Findings) -> Iterator[Metric]:
    labels = ("stack", "cell", "metric")
    families = {
        "estimate": GaugeMetricFamily("pgstrata_stack_estimate", "The level of a stack, as judged.", labels=labels),
        "low": GaugeMetricFamily("pgstrata_stack_low", "Lower bound of its interval.", labels=labels),
        "high": GaugeMetricFamily("pgstrata_stack_high", "Upper bound of its interval.", labels=labels),
    }
    primary = findings.campaign.primary
    for stack in findings.stacks:
        found = stack.metrics.get(primary)
        for name, family in families.items():
            value = getattr(found, name, None)
            if value is not None:
                family.add_metric((stack.name, stack.cell, primary), value)
    yield from families.values()
