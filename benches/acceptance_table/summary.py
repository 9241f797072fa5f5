"""The table of docs/statistics.md: scenarios of a kind in one row, with the least and the most of their figures."""

from __future__ import annotations

import re
from collections.abc import Sequence

from acceptance_table.checks import Check

_SCATTERED = (
    "one or half of them at 20 %, the others at 2 %; scatter 1 to 10; 10 % x -30 %; every second run 10 % slower"
)
_DECLARED = (
    "typical, t3, AR(1) with steps, unequal sigmas; one or half of them at 20 %, the others at 2 %; scatter 1 to 10"
)

_KINDS = (
    (r"slices A/A 2, builds in two modes", "slices, 2 equal stacks, of which one has builds 8 % faster or slower"),
    (r"slices A/A \d, carry-over .*", "slices, 2, 3 and 4 equal stacks, of which one slows the turn after it by 5 %"),
    (
        r"slices A/A .*",
        "slices, 2, 4 and 8 equal stacks: builds that scatter 0, 3 and 5 %, one 10 %; t3 turns and builds; 5 % x -50 %",
    ),
    (r"slices (\d), (\d+) % ahead", r"slices, one of \1 stacks \2 % ahead"),
    (r"slices 4, one -52 %", "slices, one of 4 stacks 52 % behind, 150 s"),
    (r"slices (equal within 5 %|at the margin)", r"slices, goal `equivalent` within 5 %: \1"),
    (
        r"A/A (2|4|12) (quiet|typical|noisy|unequal sigmas|t3|8 % outliers)",
        "2, 4 and 12 equal stacks: quiet, typical, noisy, unequal sigmas, t3, 8 % outliers",
    ),
    (
        r"A/A (4 scatter \d+|\d+ AR\(1\) with steps)",
        "2, 4 and 12 equal stacks: AR(1) with steps; 4: scatter 1 to 2, 4 and 10",
    ),
    (
        r"\d+ stacks, .*, rounded",
        "2, 4 and 12 equal stacks of 20 TPS, 9 to 60 runs that scatter 3 to 5 %, in whole numbers",
    ),
    (r"differences of \d+ blocks", "differences of 8 to 60 blocks that stay"),
    (r"differences of \d+ blocks, (.*)", r"the same, \1"),
    (r"differences of \d+ blocks that (.*)", r"differences of 12 to 60 blocks that \1"),
    (r"A/A \d, carry-over .*", "2, 3 and 4 equal stacks, of which one slows the run after it by 5 %"),
    (r"hosts \d, .* carry-over .*", "6 hosts, 2 equal stacks, of which one slows the run after it by 5 %"),
    (r"memory (\S+) of (\d)", r"\2 equal stacks, of which one resembles itself from run to run: AR(1) of \1"),
    (r"a counter that is flushed .*, (\d+)% swing", r"a counter that is flushed every 1.02 to 1.3 s, \1 % swing"),
    (r"modes (\d)(.*)", r"\1 equal stacks, of which one has builds 8 % faster or slower\2"),
    (r"lossy (\d), .*", r"\1 stacks, of which one is 5 % ahead and loses half in 15 % of its runs"),
    (r"behind (\d), -52 % at 15 %", r"one of \1 stacks 52 % behind, which scatters 15 %, the others 6 %"),
    (r"A/A (4|8|12), .*", f"4, 8 and 12 equal stacks: {_SCATTERED}"),
    (
        r"A/A against .*",
        "4 and 8 equal stacks, goal `against`: typical, t3, AR(1) with steps, unequal sigmas; the baseline, "
        + _SCATTERED,
    ),
    (r"A/A declared 4 blocks against .*", f"4 and 8 equal stacks in 4 declared blocks, goal `against`: {_DECLARED}"),
    (r"A/A declared .*", f"2, 4 and 8 equal stacks in 4 or 10 declared blocks: {_DECLARED}"),
    (r"equal-5 (.*)", r"best 5 % above 11 equals, \1"),
    (r"spread typical", "12 stacks at 0, -5, -5, -7 ... -50 %, typical"),
    (r"equivalent at margin .*", "goal `equivalent`, at the margin, quiet and typical"),
    (r"equivalent 0 quiet", "goal `equivalent`, truly equal, quiet"),
    (r"looks A/A .*", "2 and 4 equal stacks"),
    (r"looks at margin quiet", "goal `equivalent`, at the margin, quiet"),
    (r"looks declared .*", "2 and 4 equal stacks, 20 and 10 declared blocks, or 4 declared and 16 run"),
    (r"(ahead|looks ahead) 4 .*", "one of 4 ahead by 6 %, scatter 1 to 2, 4 and 10; also looked at after every run"),
    (r"(?:rare|hidden) (\d+)% x -(\d+)% margin (\d+)%", r"\1 % x -\2 %, margin \3 %"),
    (r"proof (against|best) (\d+), (\d+) % at (\d+) %", r"goal `\1`, \2 stacks, \3 % at CV \4 %"),
    (r"declared (\d+) blocks, (\d+) stacks, 0 (.*)", r"\1 declared blocks of \2 stacks at 0 \3, quiet"),
    (r"hosts \d+, interaction \d+%, ahead 10 %", "12 hosts, interaction of SD 3 %, one of two stacks 10 % ahead"),
    (
        r"hosts .*",
        "6, 12, 20 and 50 hosts, 2 or 4 equal stacks, interaction of SD 0, 3 and 10 %; 6 with t3, and with 12 blocks "
        "each",
    ),
)
"""Scenarios by their names, and what a reader is told that they are."""


def print_summary(checks: Sequence[Check]) -> None:
    """Prints one row for all checks of a kind, with the smallest and the largest figure and number of campaigns."""
    print("| row | what | bound | figure | campaigns |\n| --- | --- | --- | --- | --- |")
    rows: dict[tuple[int, str, str], list[Check]] = {}
    for check in checks:
        sign = "<=" if check.at_most else ">="
        bound = f"{sign} {check.bound:g}" if check.bound else "0"
        rows.setdefault((int(check.row), f"{_subject(check)}: {check.kind}", bound), []).append(check)
    for (row, what, bound), found in sorted(rows.items(), key=lambda item: item[0][0]):
        figures = [f"{c.figure:.{3 if c.rate else 2}f}" for c in sorted(found, key=lambda c: c.figure)]
        counts = [f"{c.count:,}" for c in sorted(found, key=lambda c: c.count)]
        print(f"| {row} | {what} | {bound} | {_range(figures)} | {_range(counts)} |")


def _subject(check: Check) -> str:
    """What is told of a check's scenario. What is chosen is counted everywhere."""
    if check.row == "10" and "ahead" not in check.subject:
        return "all other scenarios"
    for pattern, words in _KINDS:
        if found := re.fullmatch(pattern, check.subject):
            return found.expand(words)
    return check.subject


def _range(texts: Sequence[str]) -> str:
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"
