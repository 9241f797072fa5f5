"""What must fail: for each rule that a mutant weakens, a scenario and the row of it that notices."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from acceptance_table.checks import Check, campaign_checks
from acceptance_table.mutants import weaken
from acceptance_table.running import run_jobs
from acceptance_table.scenarios import RARE_AND_BAD
from acceptance_table.telling import TELLING
from acceptance_table.units import UNITS


@dataclass(frozen=True)
class Weakened:
    """A weakened rule, with as many campaigns as show it."""

    rule: str
    scenario: str
    row: str
    campaigns: int

    def missed(self, executor: Executor) -> Sequence[Check]:
        """The checks of the row that do not hold; none if the mutant goes unnoticed."""
        rows = UNITS | TELLING
        if self.scenario in rows:
            mend = weaken(self.rule)
            try:
                return [check for check in rows[self.scenario](self.campaigns) if not check.holds()]
            finally:
                mend()
        found = run_jobs([self.scenario], self.campaigns, executor, mutant=self.rule)
        return [check for check in campaign_checks(found) if check.row == self.row and not check.holds()]


WEAKENED = (
    Weakened("3.0", "A/A 4 typical", "1", 12),
    Weakened("random-order", "A/A 2, carry-over -5 %", "1", 8),
    Weakened("turn-order", "slices A/A 2, carry-over -5 %", "29", 12),
    Weakened("slice-looks", "slice effects", "32", 60),
    Weakened("evident-runs", "behind 4, -52 % at 15 %", "15", 30),
    Weakened("dropped-untold", "behind 6, -52 % at 15 %", "15", 60),
    Weakened("plain-mean", RARE_AND_BAD, "11", 30),
    Weakened("independent", "memory .5 of 2", "17", 200),
    Weakened("mean-side", "lossy 2, 5 % ahead, 15% x -50%", "16", 60),
    Weakened("modes-ignored", "modes 2, quiet", "18", 100),
    Weakened("modes-untold", "hidden 5% x -80% margin 2%", "24", 100),
    Weakened("least-runs", RARE_AND_BAD, "11", 30),
    Weakened("chosen", "ahead 4 scatter 10, quietest", "10", 30),
    Weakened("hosts", "hosts 6, interaction 10%, 12 blocks each", "13", 30),
    Weakened("extended", "looks declared 4 blocks of 4, 16 run", "6", 60),
    Weakened("any-look", "looks declared 20 blocks of 2, typical", "6", 200),
    Weakened("whole-rates", "A/A declared 4 blocks against one of 8, half 20 %, half 2 %", "1", 400),
    Weakened("one-g", "proof best 4, 20 % at 3 %", "12", 200),
    Weakened("plain-reuse", "A/A 4, 10 % x -30 %", "2", 300),
    Weakened("own-scatter", "A/A against 8, one 20 %, others 2 %", "1", 150),
    Weakened("table-scatter", "A/A 8, one 20 %, others 2 %", "1", 450),
    Weakened("own-hosts", "odd hosts", "25", 25),
    Weakened("least-hosts", "few hosts", "26", 60),
    Weakened("sessions", "sessions", "27", 40),
    Weakened("all-nights", "nights", "28", 8),
    Weakened("two-nights", "nights", "28", 40),
    Weakened("independent-nights", "nights", "28", 8),
    Weakened("rounding", "rounded", "22", 50),
    Weakened("independent-line", "growing", "23", 400),
    Weakened("sampling", "swings", "20", 20),
    Weakened("factors-singly", "effects of factors", "35", 60),
    Weakened("factors-one-look", "effects of factors", "35", 60),
    Weakened("lost-rows", "combinations of factors", "37", 30),
    Weakened("any-class", "combinations of factors", "37", 20),
    Weakened("no-interactions", "combinations of factors", "37", 20),
    Weakened("mixture", "memory .3 of 2", "17", 1000),
)


def print_weakened(executor: Executor) -> bool:
    """Prints a row for each; whether every one is noticed."""
    noticed = True
    print("| rule | scenario | row | figures | campaigns | |\n| --- | --- | --- | --- | --- | --- |")
    for one in WEAKENED:
        missed = one.missed(executor)
        shown = "; ".join(f"{check.kind} {check.figure:.3f}" for check in missed) or "all hold"
        verdict = "noticed" if missed else "NOT NOTICED"
        print(f"| {one.rule} | {one.scenario} | {one.row} | {shown} | {one.campaigns} | {verdict} |", flush=True)
        noticed = noticed and bool(missed)
    return noticed
