"""Recreates every kept state of recorded crash trials from its event log, and compares it with the record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pgstrata.crash.event_log_archive import CHOICES, LOG
from pgstrata.crash.ledger import acknowledged_by, parse_marks
from pgstrata.crash.named_state import chosen_states, recorded_states
from pgstrata.crash.program import ChosenState, parse_states
from pgstrata.crash.replay import TIMEOUT_S, unpacked_log
from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Command, Host
from pgstrata.record.crash import StateRecord
from pgstrata.record.reader import CrashData
from pgstrata.record.source import Source
from pgstrata.stack.block.media import call

SHOWN = 5
"""Most differing states named one by one."""


@dataclass(frozen=True)
class Verified:
    """The comparison of one crash trial with its kept event log."""

    stack: str
    folder: str
    states: int
    """Number of states that the log and the choices make as recorded."""
    nested: int
    """States of interrupted recoveries, which are not compared: their logs are not kept unless one fails."""
    problems: tuple[str, ...]


def verify_trial(host: Host, source: Source, trial: CrashData) -> Verified:
    """Makes the states of a trial again and compares digests and acknowledgements."""
    records = recorded_states(source, trial)
    own = {state.digest: state for state in records.values() if state.interrupts is None}
    log, choices = (f"{trial.folder}/{name}" for name in (LOG, CHOICES))
    counted = trial.found.states
    problems = [f"{counted} states are counted, and {len(records)} are described"] if counted != len(records) else []
    same = 0
    if absent := [name for name in (log, choices) if not source.has(name)]:
        problems.append(f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not kept")
    else:
        chosen = chosen_states(source, choices)
        kept = {state.digest for state in chosen}
        missing = [state.id for digest, state in own.items() if digest not in kept]
        problems += _named("the choice of state {} is missing", missing)
        try:
            made, marks = _made(host, source, log, chosen)
        except PreflightError as error:
            problems.append(error.message)
        else:
            different = list(compare(own, made, marks))
            problems += different[:SHOWN]
            problems += [f"{len(different) - SHOWN} more states differ"] if len(different) > SHOWN else []
            same = len(own) - len(missing) - len(different)
    return Verified(trial.found.stack, trial.folder, max(same, 0), len(records) - len(own), tuple(problems))


def compare(own: Mapping[str, StateRecord], made: Sequence[tuple[ChosenState, str]], marks: str) -> Iterator[str]:
    """Differences between recorded states, by digest, and the digests of the same choices made again."""
    acknowledged = parse_marks(marks)
    for choice, digest in made:
        state = own.get(choice.digest)
        if state is None:
            yield f"the choice with digest {choice.digest} belongs to no recorded state"
        elif digest != state.digest:
            yield f"state {state.id} has digest {digest} when it is made of the event log, not {state.digest}"
        elif choice.cut != state.cut:
            yield f"state {state.id} is cut after event {choice.cut} by its choice, not {state.cut}"
        elif (count := sum(acknowledged_by(acknowledged, state.cut).values())) != state.acknowledged:
            yield f"state {state.id} has {count} acknowledged transactions in the event log, not {state.acknowledged}"


def _made(
    host: Host, source: Source, name: str, chosen: Sequence[ChosenState]
) -> tuple[list[tuple[ChosenState, str]], str]:
    """Every choice, by cut, with the digest that the log gives it; and the marks of the log."""
    ordered = sorted(chosen, key=lambda state: state.cut)
    lines = "".join(f"{state.line}\n" for state in ordered)
    with unpacked_log(host, source, name) as log:
        measure = replace(call("measure", log), stdin=lines, timeout_s=TIMEOUT_S).resolve({})
        states = parse_states(_printed(host, name, measure))
        marks = _printed(host, name, replace(call("marks", log), timeout_s=TIMEOUT_S).resolve({}))
    return [(choice, state.digest) for choice, state in zip(ordered, states, strict=True)], marks


def _printed(host: Host, name: str, command: Command) -> str:
    done = host.run(command, check=False)
    if done.exit_code != 0:
        raise PreflightError(f"{name} does not make its states: {done.stderr.strip()[-300:]}")
    return done.stdout


def _named(sentence: str, names: Sequence[str]) -> list[str]:
    told = [sentence.format(name) for name in names[:SHOWN]]
    return [*told, *([f"{len(names) - SHOWN} more choices are missing"] if len(names) > SHOWN else [])]
