"""What may be asked of crash trials, and which of it goes together: on the command line and in a campaign's file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from pydantic import Field

from pgstrata.spec.checks import Refused
from pgstrata.spec.model import DurationS, Model
from pgstrata.spec.stack import Stack

Rejoin = Literal["rewind", "backup"]
"""How a lost primary that kept its directory comes to follow the one that was promoted: pg_rewind, or a new base
backup."""

ScriptName = Literal["ledger", "tpcb-like"]
"""What sessions write before power is cut: the ledger, or pgbench's built-in script."""
SHOWN: Mapping[ScriptName, str] = {"ledger": "the ledger", "tpcb-like": "pgbench's tpcb-like"}

Spelling = Callable[[str], str]
"""How a wish is written where it was made: an option, or a key."""

OF_CLUSTERS = ("power", "gone", "rejoin")
OF_POWER_CUTS = ("minutes", "ignore-flushes", "gone", "script")
OF_LOST_NODES = ("lost", "promote", "rejoin")
OF_ONE_SERVER = ("fault", "nested", "on")


class CrashTrials(Model):
    """Power cuts: each stack is also put on a recorded disk, and PostgreSQL recovered in states that could be left. Of
    clusters nodes are lost, or all of them lose power."""

    states: int = Field(100, ge=1, le=100_000, description="so many states of each stack")
    time: DurationS = Field(60.0, gt=0, description="for looking at the states of a stack, at most")
    script: ScriptName = Field("ledger", description="what is written: the ledger, or pgbench's own transactions")
    power: bool = Field(False, description="of clusters: all nodes lose power at once, instead of a node being lost")
    gone: tuple[str, ...] = Field((), description="with power: nodes that do not come back")
    rejoin: Rejoin | None = Field(
        None, description="of clusters: a lost primary follows the promoted node, by pg_rewind or a new base backup"
    )


def refuse_crash(asked: CrashTrials, stacks: Sequence[Stack]) -> None:
    """Refused for crash trials of a campaign of which no stack has what is asked of it."""
    other_script = asked.script != "ledger"
    wishes = {"power": asked.power, "gone": asked.gone, "rejoin": asked.rejoin, "script": other_script}
    clusters = [stack for stack in stacks if stack.topology is not None]
    refuse_together([name for name, wish in wishes.items() if wish], _as_key, cluster=bool(clusters))
    problems = {stack.name: node_problem(stack, asked.gone) for stack in clusters}
    if problems and all(problems.values()):
        name, problem = next(iter(problems.items()))
        raise Refused(f"crash.gone: power cannot be cut below {name}: {problem}", "name nodes that are there")


def _as_key(name: str) -> str:
    return f"crash.{name}"


def as_option(name: str) -> str:
    """Of `pgstrata crash`."""
    return f"--{name}"


def refuse_together(given: Collection[str], spelt: Spelling, *, cluster: bool) -> None:
    """Refused for wishes of which some are for other trials. `given` has the names of those that are not as they are
    by default, `cluster` says whether a cluster is tested."""

    def among(kind: Sequence[str]) -> list[str]:
        return [spelt(name) for name in kind if name in given]

    if not cluster:
        if names := among(OF_CLUSTERS):
            raise Refused(
                f"{_are_for(names, 'clusters')}: of one server power is always cut",
                "name a cluster: 'cluster(3,ANY 1)/ext4'",
            )
    elif "power" in given:
        if others := [
            *_each(among(OF_LOST_NODES), "nodes that are lost while the others run"),
            *_each(among(OF_ONE_SERVER), "one server"),
        ]:
            raise Refused(
                f"with {spelt('power')} all nodes lose power, and the one that reaches furthest goes on: "
                + ", ".join(others),
                f"nodes that never come back: {spelt('gone')}",
            )
    elif others := [*_each(among(OF_POWER_CUTS), "power cuts"), *_each(among(OF_ONE_SERVER), "those of one server")]:
        raise Refused(
            f"of clusters nodes are lost: {', '.join(others)}",
            f"all nodes lose power at once: {spelt('power')}",
        )


def _each(names: Sequence[str], what: str) -> list[str]:
    return [_are_for(names, what)] if names else []


def _are_for(names: Sequence[str], what: str) -> str:
    """`--lost and --rejoin are for WHAT`."""
    *others, last = names
    return f"{', '.join(others)} and {last} are for {what}" if others else f"{last} is for {what}"


def node_problem(stack: Stack, names: Sequence[str]) -> str:
    """Which of the nodes a cluster does not have; empty where it has them."""
    there = [node.name for node in stack.nodes]
    unknown = next((name for name in names if name not in there), "")
    return f"it has no node {unknown!r} (there are: {', '.join(there)})" if unknown else ""
