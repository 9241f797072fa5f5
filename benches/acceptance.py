"""The acceptance table of docs/statistics.md: simulated campaigns against the bounds that the method must hold.

The production policy decides and the production statistics judge; only the machine is made up. Prints the table, with
pass or FAIL behind each row; ends with 1 when a row fails. `--mutant` weakens a rule, which must fail: a number makes
every interval narrower by that factor, the names of the other rules are listed by --help; `--mutants` runs each on a
scenario that must notice it. `--kept` keeps the outcome of every campaign, so that a table can be run in pieces;
outcomes of another method must not be in that file.
Example: nice .venv/bin/python benches/acceptance.py --campaigns 2000
"""

from __future__ import annotations

import os

# One thread a process: the matrices are small, and the campaigns run in parallel. Processes inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import re
import sys
import time
from pathlib import Path

from acceptance_table.checks import campaign_checks, print_checks
from acceptance_table.mutants import RULES, weaken
from acceptance_table.running import run_jobs
from acceptance_table.scenarios import scenarios
from acceptance_table.shapes import robustness_checks, shape_checks
from acceptance_table.summary import print_summary
from acceptance_table.telling import telling_checks
from acceptance_table.units import unit_checks
from acceptance_table.weakened import print_weakened

from pgstrata.fleet.work import opened_work


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaigns", type=int, default=2000, help="of each scenario")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first campaign: beyond those with which a bound was set"
    )
    parser.add_argument("--workers", type=int, help="processes of this machine; by default one a processor")
    parser.add_argument("--on", metavar="dask:ADDRESS", help="workers of a Dask cluster, with benches/ in PYTHONPATH")
    parser.add_argument("--mutant", default="", help=f"a factor for the intervals, or one of {', '.join(RULES)}")
    parser.add_argument(
        "--mutants", action="store_true", help="every weakened rule; ends with 1 where one goes unnoticed"
    )
    parser.add_argument(
        "--only", default="", help="scenarios whose name this expression is found in; rows of no campaigns are left out"
    )
    parser.add_argument("--kept", type=Path, help="file of outcomes: those in it are not run again, others are added")
    parser.add_argument(
        "--summary", action="store_true", help="scenarios of a kind in one row, as docs/statistics.md has them"
    )
    options = parser.parse_args()
    if options.mutant and options.kept:
        parser.error("outcomes of a mutant are not kept: leave out --kept or --mutant")
    if options.mutant:
        print(f"mutant: {options.mutant}; the table must fail\n")
    began = time.monotonic()
    workers = options.workers if options.on else options.workers or os.cpu_count()
    if options.mutants:
        with opened_work(workers, options.on) as executor:
            return 0 if print_weakened(executor) else 1
    names = [name for name in scenarios() if re.search(options.only, name)]
    with opened_work(workers, options.on) as executor:
        results = run_jobs(names, options.campaigns, executor, options.kept, mutant=options.mutant, first=options.first)
    if options.mutant:
        weaken(options.mutant)  # of what is simulated here
    checks = list(campaign_checks(results))
    if not options.only:
        checks += list(shape_checks(max(50, options.campaigns // 2)))
        checks += list(telling_checks(max(50, options.campaigns // 2)))
        checks += list(unit_checks(options.campaigns))
        checks += list(robustness_checks(max(3, options.campaigns // 100)))
    held = print_checks(checks)
    if options.summary:
        print()
        print_summary(checks)
    print(f"\n{options.campaigns} campaigns of each of {len(names)} scenarios in {time.monotonic() - began:.0f} s")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
