"""From the workers of a cluster to the hosts of a campaign: a machine is one, however many workers it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgstrata.errors import PreflightError
from pgstrata.fleet.messages import Described


@dataclass(frozen=True)
class Machine:
    """`workers` are the addresses of its workers: the first one is used, the others stand by."""

    name: str
    id: str
    workers: tuple[str, ...]


def machines_of(workers: Mapping[str, Described]) -> tuple[Machine, ...]:
    """Named as they name themselves; of two with one name, with the beginning of their machine ids."""
    addresses: dict[str, list[str]] = {}
    for address in sorted(workers):
        addresses.setdefault(workers[address].machine, []).append(address)
    names = {id_: workers[found[0]].hostname for id_, found in addresses.items()}
    ambiguous = {name for name in names.values() if list(names.values()).count(name) > 1}
    named = {id_: f"{name}-{id_[:6]}" if name in ambiguous else name for id_, name in names.items()}
    return tuple(Machine(named[id_], id_, tuple(addresses[id_])) for id_ in sorted(named, key=lambda id_: named[id_]))


def check_versions(workers: Mapping[str, Described], here: Described) -> None:
    """PreflightError for workers with another pgstrata: it might build, measure or record differently."""
    other = {w.hostname: w.pgstrata for w in workers.values() if w.pgstrata != here.pgstrata}
    if other:
        named = ", ".join(f"{host} has {version}" for host, version in sorted(other.items()))
        raise PreflightError(
            f"workers have another pgstrata than the {here.pgstrata} here: {named}",
            hint=f"pip install 'pgstrata[dask]=={here.pgstrata}' there, and start the workers again",
        )


def notices(workers: Mapping[str, Described], machines: Sequence[Machine], here: Described) -> list[str]:
    """What the user should know of the workers before anything runs."""
    told = []
    for machine in machines:
        first = workers[machine.workers[0]]
        if len(machine.workers) > 1:
            told.append(
                f"{machine.name} has {len(machine.workers)} workers: one trial at a time runs there, "
                "the other workers stand by"
            )
        if first.uid != 0:
            told.append(f"{machine.name}: its worker is {first.user}, not root: stacks that need root cannot be built")
        if first.python != here.python:
            told.append(f"{machine.name} has Python {first.python}, here is {here.python}")
    return told
