"""Files that ask for anything: an error at once, instead of memory or hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgstrata.errors import UsageError
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.workload.pgbench_logs import summarise_logs

LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{n}: &{n} [{','.join([f'*{b}'] * 10)}]\n" for b, n in zip("abcdefgh", "bcdefghi", strict=True)
)
CHAIN = "stacks:\n  s0: tmpfs\n" + "".join(f"  s{n + 1}: {{inherits: s{n}}}\n" for n in range(900))

REFUSED = {
    "blocks": "runs: {blocks: 1000000000}",
    "blocks below": "runs: {blocks: -1}",
    "max_blocks": "runs: {max_blocks: 1000000000}",
    "no budget": "runs: {budget: 0}",
    "long budget": "runs: {budget: 99999999999d}",
    "endless": "runs: {budget: .inf}",
    "no number": "goal: {margin: .nan}",
    "scale": "workload: {scale: 1000000000000000000}",
    "scale below": "workload: {scale: [1, -1]}",
    "clients": "workload: {clients: 0}",
    "jobs": "workload: {jobs: 100000000}",
    "grid": f"workload: {{scale: {list(range(1, 200))}, clients: {list(range(1, 200))}}}",
    "digits": f"workload: {{scale: {'9' * 5000}}}",
    "rate": "workload: {rate: 1e300}",
    "seed": "seed: 99999999999999999999",
    "laughs": LAUGHS,
    "circle of aliases": "a: &a [*a]",
    "depth": "a: " + "[" * 5000 + "]" * 5000,
    "length": "# " + "x" * (2 << 20),
    "chain": CHAIN,
}


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_campaigns(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "c.yaml"
    text = REFUSED[kind]
    file.write_text(text if "stacks:" in text else f"stacks: [tmpfs]\n{text}\n", encoding="utf-8")
    with pytest.raises(UsageError):
        load_campaign(file)


@pytest.mark.parametrize(
    "text",
    [
        "loop(1000000000)/ext4",
        "loop(size=1000000000000000000)/ext4",
        "loop(size=0)/ext4",
        f"loop(size={'9' * 400})/ext4",
        "tmpfs:size=999999p",
        "nfs(" * 300 + "xfs" + ")" * 300,
        "nfs(nfs(xfs))",
        "ext4@work_mem=" + "x" * 5000,
        "(" * 900,
    ],
)
def test_stacks(text: str) -> None:
    with pytest.raises(UsageError):
        parse_stack(text)


def test_a_mistyped_time_in_a_log(tmp_path: Path) -> None:
    log = tmp_path / "pgbench_log.1"
    log.write_text("0 1 500 0 1700000000 1\n0 2 500 0 17000000000 1\n", encoding="utf-8")
    with pytest.raises(UsageError, match="the log spans 15300000000 s"):
        summarise_logs([log])
