"""Facts of the host and of the server, beside every trial: what is checked and what is merely told."""

from __future__ import annotations

from pgstrata.record.schema import HostFacts
from pgstrata.trial.bench import Bench


def run_facts(bench: Bench) -> None:
    """Writes `facts.json`."""
    checked = {"postgresql": bench.cluster.installation.version}
    facts = HostFacts(name=bench.host.name, kind=bench.host.kind, checked=checked, medium=bench.site.medium)
    bench.recorder.write("facts.json", facts)
