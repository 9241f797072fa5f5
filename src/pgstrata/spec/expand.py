"""Expands a campaign into trials: randomised complete blocks.

In every block each stack runs once per scale, in a random order, so that drift of the machine affects all stacks alike.
A round begins with the stack that ran last in the previous round, and the others follow in a fresh order: every stack
then runs as often right after itself as after any other, which balances the effects of one run on the next. (Two stacks
run in the order a b, b a, a b, ...) The order comes from a hash of seed, stage, block, scale and the stack's name; with
several hosts, the host's name and turn replace the block. It is the same on every machine and version of Python.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TypeVar

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign, Slices, Stage, Trial, measures_servers
from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.workload import Cell

S = TypeVar("S")
T = TypeVar("T", str, int)

LINKED_BLOCKS = 32
"""Number of blocks with linked orders. The next block starts a new chain, so that any order can be computed quickly."""
AA_SUFFIX = " (A/A)"

_PREFIX = {"screen": "b", "confirm": "c", "latency": "l", "capacity": "k", "soak": "s"}
_SLUG_LENGTH = 60
_OF_BLOCK = re.compile(rf"[{''.join(_PREFIX.values())}]([0-9]+)-[0-9]+-")


def stable_hash(*parts: object) -> int:
    """A 64-bit integer from SHA-256 of the parts; documented so that an order can be checked by hand."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def block_trials(
    campaign: Campaign,
    block: int,
    stacks: Sequence[str],
    stage: Stage = "screen",
    *,
    cells: Mapping[str, Sequence[Cell]] | None = None,
    duration_s: float | None = None,
    slices: Slices | None = None,
    host: str = "",
    turn: int | None = None,
) -> tuple[Trial, ...]:
    """The trials of one block in the order of execution: one round of all stacks for each scale.

    `block` counts from 0 through all stages. `cells` by stack replaces the campaign's grid, `duration_s` the workload's
    duration. With `slices` the trials of a round stand side by side. With several hosts a block belongs to one `host`
    and is the `turn`-th there. Raises UsageError for a stack that the campaign does not have.
    """
    known = {s.name for s in campaign.stacks}
    for name in stacks:
        if name not in known:
            raise UsageError(f"stack {name!r} is not in campaign {campaign.name!r}", hint=render_nearest(name, known))
    trials: list[Trial] = []
    for scale, order in _rounds(campaign, stacks, stage, block if turn is None else turn, host):
        grid = scale_cells(campaign, scale)
        for name in order:
            own = grid if cells is None else tuple(c for c in cells.get(name, ()) if c.scale == scale)
            if own:
                trials.append(_trial(campaign, block, len(trials), stage, name, own, duration_s, slices, turn))
    return tuple(t.model_copy(update={"host": host}) for t in trials) if host else tuple(trials)


def following(last: str, order: Sequence[str]) -> list[str]:
    """The order of a round after the stack that ran `last`: that stack first if it is still included."""
    return sorted(order, key=lambda name: name != last)


def turn_order(standing: Sequence[S], turn: int) -> Sequence[S]:
    """Return the order of a round of turns of what stands side by side: every second round is in the reverse order of
    the one before. So each follows each equally often, itself too."""
    return standing if turn % 2 == 0 else standing[::-1]


def _rounds(
    campaign: Campaign, stacks: Sequence[str], stage: Stage, turn: int, host: str
) -> list[tuple[int, list[str]]]:
    """Scales and orders of the rounds of one block."""
    scales, own = sorted(set(campaign.workload.scale)), (host,) if host else ()
    last = ""
    rounds: list[tuple[int, list[str]]] = []
    for at in range(turn - turn % LINKED_BLOCKS, turn + 1):
        rounds = []
        for scale in _order(scales, campaign.seed, stage, at, "scales", *own):
            order = following(last, _order(stacks, campaign.seed, stage, at, scale, *own))
            rounds.append((scale, order))
            last = order[-1]
    return rounds


def _order(values: Sequence[T], *seed: object) -> list[T]:
    return sorted(values, key=lambda value: (stable_hash(*seed, value), str(value)))


def _trial(
    campaign: Campaign,
    block: int,
    position: int,
    stage: Stage,
    stack: str,
    cells: tuple[Cell, ...],
    duration_s: float | None,
    slices: Slices | None,
    turn: int | None,
) -> Trial:
    runs = campaign.runs
    scale = cells[0].scale
    anew = runs.load == "copy" and (block if turn is None else turn) < runs.fresh_blocks
    anew = anew or not campaign.stack(stack).is_attested  # each trial has a database of its own
    return Trial(
        id=f"{_PREFIX[stage]}{block:03d}-{position:02d}-{slug(stack)}-s{scale}",
        stack=stack,
        block=block,
        position=position,
        stage=stage,
        load="fresh" if anew else runs.load,
        scale=scale,
        cells=cells,
        duration_s=duration_s,
        slices=slices,
        workload_seed=workload_seed(campaign.seed, block),
    )


def block_of(trial_id: str) -> int:
    """The block of a trial by its id; -1 for an id that `block_trials` does not give."""
    found = _OF_BLOCK.match(trial_id)
    return int(found.group(1)) if found else -1


def scale_cells(campaign: Campaign, scale: int) -> tuple[Cell, ...]:
    """Cells that share one load of that scale; read-only cells come first, while the data is as loaded."""
    cells = [c for c in campaign.workload.cells if c.scale == scale]
    return tuple(sorted(cells, key=lambda c: c.script != "select-only"))


def workload_seed(seed: int, block: int) -> int:
    """pgbench --random-seed of a block: the same for all its stacks, different in every block."""
    return stable_hash(seed, "workload", block) % 2**31


def slug(name: str) -> str:
    """A name fit for a directory: `xfs over lvm(25)` becomes `xfs-over-lvm-25`."""
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")
    return plain[:_SLUG_LENGTH].rstrip("-.") or "stack"


def with_aa(campaign: Campaign) -> Campaign:
    """The campaign with its first stack also under a second name, if `runs.aa` requests that check of the method."""
    first = campaign.stacks[0]
    name = first.name + AA_SUFFIX
    if not campaign.runs.aa or any(s.name == name for s in campaign.stacks):
        return campaign
    twin = first.model_copy(update={"name": name, "note": f"the same as {first.name}, as a check of the method"})
    return campaign.model_copy(update={"stacks": (first, twin, *campaign.stacks[1:])})


LONGEST_AUTO_S = 30.0
"""Longer runs are asked for to see checkpoint cycles, which slices do not show."""

WHOLE_RUN_EVERY = 8
"""Blocks from one with whole runs to the next."""


def why_whole(campaign: Campaign) -> str:
    """Return why the runs of a campaign are whole ones; empty if nothing in the campaign prevents slices."""
    if campaign.runs.design == "whole":
        return "runs.design is whole"
    prevented = next(_prevented(campaign), "")
    return prevented if prevented or campaign.runs.design == "slices" else next(_not_wanted(campaign), "")


def planned_slices(campaign: Campaign) -> Slices | None:
    """Return the turns that a campaign is to have, if its host allows them."""
    return None if why_whole(campaign) else campaign.runs.slices


def has_whole_run(trial: Trial) -> bool:
    """True if one whole run of each stack follows the slices of a trial's block: it shows stalls and checkpoints,
    explains the throughput, and is held against the slices."""
    return trial.slices is not None and trial.block % WHOLE_RUN_EVERY == 0


def _prevented(campaign: Campaign) -> Iterator[str]:
    """Yield every reason why the stacks cannot take turns."""
    workload, runs = campaign.workload, campaign.runs
    if len(campaign.stacks) < 2:
        yield "the campaign has one stack"
    if campaign.hosts:
        yield "the campaign is on several hosts"
    if campaign.goal.primary != "tps":
        yield f"slices measure tps, and goal.primary is {campaign.goal.primary}"
    if not workload.driver.takes_turns:
        yield f"runs of the driver {workload.driver.kind} cannot be cut"
    if workload.transactions is not None:
        yield "workload.transactions does not bound the time of a run"
    if workload.client is not None:
        yield "the client is on another host"
    if runs.load == "keep":
        yield "runs.load is keep"
    if runs.precondition == "steady":
        yield "runs.precondition is steady"
    if measures_servers(campaign):
        yield "running servers are measured one after the other"
    for stack in campaign.stacks:
        if stack.topology is not None:
            yield f"{stack.name} is a cluster"
        modules = any(volume.fs.host_settings for volume in stack.volumes.values())
        if stack.kernel.sysctl or stack.kernel.transparent_hugepage is not None or modules:
            yield f"{stack.name} sets kernel settings of the whole host"
    exported = [s.name for s in campaign.stacks if any(v.fs.one_server for v in s.volumes.values())]
    if len(exported) > 1:
        yield f"one server of the host serves {exported[0]} and {exported[1]}"
    for a, b in combinations(campaign.stacks, 2):
        if shared := set(a.device_ids) & set(b.device_ids):
            yield f"{a.name} and {b.name} are on the same device {min(shared)}"


def _not_wanted(campaign: Campaign) -> Iterator[str]:
    """Yield every reason why `auto` keeps whole runs."""
    runs, workload = campaign.runs, campaign.workload
    if runs.budget is None:
        yield "the campaign has no budget"
    if runs.blocks is not None:
        yield "runs.blocks is fixed"
    longest_s = max(workload.cell_duration_s(cell) or 0.0 for cell in workload.cells)
    if longest_s > LONGEST_AUTO_S:
        yield f"runs of more than {LONGEST_AUTO_S:.0f} s show checkpoint cycles, which slices do not"
