"""What must hold: the rows of the table, each a figure against its bound."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from acceptance_table.efficiency import runs_with_known_scatter
from acceptance_table.outcome import Result, mean
from acceptance_table.scenarios import BEHIND, LOSSY, MODES, PROOF, RARER, REMEMBERING, SHOWN
from acceptance_table.turns import PROVEN, TWO_MODES
from pgstrata.analyze.campaign.simulate import LEVELS

FIXED_10_H = 12 * 10 * LEVELS["typical"].trial_s / 3600


@dataclass(frozen=True)
class Check:
    """One figure against its bound."""

    row: str
    subject: str
    """The scenario, or what else was looked at."""
    kind: str
    figure: float
    at_most: bool
    bound: float
    count: int
    rate: bool = True

    @property
    def what(self) -> str:
        return f"{self.subject}: {self.kind}"

    def holds(self, sigmas: float = 0.0) -> bool:
        """With `sigmas` > 0 the bound is widened by so many standard errors of a rate from few campaigns."""
        slack = sigmas * math.sqrt(max(self.bound * (1 - self.bound), 0.01) / self.count) if self.rate else 0.0
        if not self.rate and sigmas:
            slack = 0.15 * self.bound
        return self.figure <= self.bound + slack if self.at_most else self.figure >= self.bound - slack


def campaign_checks(results: dict[str, list[Result]]) -> Iterator[Check]:
    """Rows 1 to 6, 9 to 19, 23, 24 and 29 to 31, of whatever scenarios were run."""
    for name, found in ((name, found) for name, found in results.items() if found):
        count = len(found)
        if name.startswith("slices"):
            yield from _sliced_checks(name, found)
            continue
        false = mean(r.false_claim for r in found)
        if name.startswith("A/A"):
            yield Check("1", name, "false claim", false, True, 0.05, count)
            yield Check("23", name, "told to grow or shrink", mean(r.growing for r in found), True, 0.05, count)
        if name.startswith("looks"):
            yield Check("6", name, "false claim, looked after every run", false, True, 0.05, count)
        if name.startswith("hosts"):
            yield Check("13", name, "false claim, looked after every round", false, True, 0.05, count)
            if "ahead" in name:
                yield Check("13", name, "proven", mean(r.all_proven for r in found), False, 0.95, count)
            else:
                yield Check("13", name, "all intervals cover", mean(r.all_cover for r in found), False, 0.95, count)
            continue
        wrong = mean(r.wrongly_chosen for r in found)
        yield Check("10", name, "wrongly chosen", wrong, True, 0.05, count)
        beside = mean(r.beside_open for r in found)
        yield Check("10", name, "chosen beside an open verdict", beside, True, 0.0, count, rate=False)
        said = [not r.wrongly_chosen for r in found if r.chosen]
        if len(said) >= 20:
            yield Check("10", name, "of the chosen, true", mean(said), False, 0.95, len(said))
        if name in PROOF:
            yield Check("12", name, "runs", mean(r.runs for r in found), True, PROOF[name][-1], count, rate=False)
            yield Check("12", name, "proven", mean(r.all_proven for r in found), False, 0.95, count)
            if name.startswith("proof against"):
                share = mean(r.runs for r in found) / runs_with_known_scatter(*PROOF[name][:-1])
                yield Check("19", name, "runs, of those with known scatter", share, True, 1.5, count, rate=False)
        if name in REMEMBERING:
            yield Check("17", name, "false claim", false, True, REMEMBERING[name], count)
        if name in MODES:
            yield Check("18", name, "false claim", false, True, MODES[name], count)
            both = mean(r.both_came for r in found)
            yield Check("18", name, "false claim though both modes came", both, True, 0.03, count)
        if name in LOSSY:
            better = mean(r.lossy_better for r in found)
            yield Check("16", name, "called better or chosen", better, True, LOSSY[name], count)
        if name in BEHIND:
            told, ended = mean(r.told_behind for r in found), mean(r.unbounded for r in found)
            yield Check("15", name, "told behind", told, False, BEHIND[name], count)
            yield Check("15", name, "ends without bounds", ended, True, 0.01, count)
        if name in SHOWN:
            yield Check("14", name, "told apart", mean(r.told_apart for r in found), False, SHOWN[name], count)
        if name.startswith("rare"):
            yield Check("11", name, "falsely equal", mean(r.equal for r in found), True, 0.05, count)
        if name in RARER:
            hides = mean(r.hides_mode for r in found)
            yield Check("24", name, "equal, and not told that such a mode can be missed", hides, True, 0.05, count)
        if name.startswith("equivalent at margin"):
            yield Check("5", name, "falsely equal", mean(r.equal for r in found), True, 0.05, count)
        covered = [r.confirm_covers for r in found if r.confirm_covers is not None]
        # Of a mixture with a bad mode the robust location is not the difference of the effects.
        if len(covered) >= 20 and not name.startswith(("rare", "hidden", "lossy", "memory", "modes")):
            yield Check("2", name, "confirm interval covers", mean(covered), False, 0.95, len(covered))
        if name.startswith(("A/A", "equal-5", "spread", "declared")):
            yield Check("2", name, "all intervals cover", mean(r.all_cover for r in found), False, 0.95, count)
    yield from _speed_checks(results)


def _speed_checks(results: dict[str, list[Result]]) -> Iterator[Check]:
    for level, best, proven in (("quiet", 0.98, 0.95), ("typical", 0.98, 0.95), ("noisy", 0.95, 0.80)):
        found = results.get(f"equal-5 {level}", [])
        if found:
            yield Check("3", f"equal-5 {level}", "best picked", mean(r.best for r in found), False, best, len(found))
            share = mean(r.proven for r in found)
            yield Check("3", f"equal-5 {level}", "proven", share, False, proven, len(found))
    if found := results.get("spread typical", []):
        total, screen = mean(r.total_h for r in found), mean(r.screen_h for r in found)
        yield Check("4", "spread typical", "total, h", total, True, 10.0, len(found), rate=False)
        yield Check(
            "4", "spread typical", "screening / fixed-10", screen / FIXED_10_H, True, 0.40, len(found), rate=False
        )
        yield Check("4", "spread typical", "best picked", mean(r.best for r in found), False, 0.99, len(found))
    if found := results.get("equal-5 typical", []):
        share = mean(r.screen_h for r in found) / FIXED_10_H
        yield Check("4", "equal-5 typical", "screening / fixed-10", share, True, 0.60, len(found), rate=False)
    if found := results.get("equivalent 0 quiet", []):
        yield Check("5", "equivalent 0 quiet", "equal", mean(r.equal for r in found), False, 0.90, len(found))
        pairs = mean(r.pairs for r in found)
        yield Check("5", "equivalent 0 quiet", "pairs", pairs, True, 40, len(found), rate=False)
    if found := results.get("A/A 12 typical", []):
        share = mean(r.total_h for r in found) / FIXED_10_H
        yield Check("9", "12 equal stacks, typical", "total / fixed-10", share, True, 1.1, len(found), rate=False)
        says = mean(r.says_reach for r in found)
        yield Check("9", "12 equal stacks, typical", "smallest provable margin is given", says, False, 1.0, len(found))


def _sliced_checks(name: str, found: list[Result]) -> Iterator[Check]:
    """Rows 29 to 31 of one scenario."""
    count, seconds = len(found), mean(r.total_h * 3600 for r in found)
    if "A/A" in name:
        bound, false = 0.06 if name == TWO_MODES else 0.05, mean(r.false_claim for r in found)
        yield Check("29", name, "false claim, looked after every block", false, True, bound, count)
    if name in PROVEN:
        most_s, least = PROVEN[name]
        proven = mean(r.told_behind for r in found) if "one" in name else mean(r.all_proven for r in found)
        yield Check("30", name, "machine seconds", seconds, True, most_s, count, rate=False)
        yield Check("30", name, "told" if "one" in name else "proven", proven, False, least, count)
    if name == "slices equal within 5 %":
        yield Check("31", name, "equal", mean(r.equal for r in found), False, 0.95, count)
        yield Check("31", name, "machine seconds", seconds, True, 850, count, rate=False)
    if name == "slices at the margin":
        yield Check("31", name, "falsely equal", mean(r.equal for r in found), True, 0.05, count)


def print_checks(checks: Sequence[Check]) -> bool:
    """Prints a row for each check; whether every one holds."""
    print("| row | what | bound | figure | campaigns | |\n| --- | --- | --- | --- | --- | --- |")
    for check in sorted(checks, key=lambda c: int(c.row)):
        sign, figure = "<=" if check.at_most else ">=", f"{check.figure:.{3 if check.rate else 2}f}"
        verdict = "pass" if check.holds() else "FAIL"
        print(f"| {check.row} | {check.what} | {sign} {check.bound:g} | {figure} | {check.count} | {verdict} |")
    return all(c.holds() for c in checks)
