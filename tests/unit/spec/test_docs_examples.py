"""What the documentation shows is valid."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.notation.stack import parse_stack, render_stack

DOCS = Path(__file__).parents[3] / "docs"
CAMPAIGN_SECTIONS = ("stacks", "defaults", "matrix", "workload", "runs", "goal")


def _blocks(page: str) -> list[str]:
    """Indented blocks of a page that are parts of a campaign; each goal of the list of goals by itself."""
    text = (DOCS / page).read_text()
    blocks = [textwrap.dedent(b).strip() for b in re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, flags=re.MULTILINE)]
    parts = [part for b in blocks for part in (b.splitlines() if b.startswith("goal") else [b])]
    return [part for part in parts if part.split(":")[0] in CAMPAIGN_SECTIONS]


def _notations() -> list[str]:
    rows = re.findall(r"^\| (`.*?) \|", (DOCS / "stacks.md").read_text(), flags=re.MULTILINE)
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row)]


@pytest.mark.parametrize("text", _blocks("campaign.md"))
def test_campaigns_in_the_docs_load(tmp_path: Path, text: str) -> None:
    file = tmp_path / "c.yaml"
    needs_stacks = not re.search(r"^(stacks|matrix):", text, flags=re.MULTILINE)
    file.write_text(("stacks: {ext4: , xfs: , lvm x1: xfs}\n" if needs_stacks else "") + text)
    assert load_campaign(file).stacks


@pytest.mark.parametrize("text", _notations())
def test_notations_in_the_docs_are_valid(text: str) -> None:
    stack = parse_stack(f"ext4{text}" if text.startswith("@") else text)
    assert parse_stack(render_stack(stack)).data == stack.data


def test_there_is_something_to_check() -> None:
    assert len(_blocks("campaign.md")) >= 9
    assert len(_notations()) >= 35
