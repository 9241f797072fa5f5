"""docs/reference/cli.md is what the program says."""

from __future__ import annotations

import re
from pathlib import Path

from pgstrata_docs.cli import render_reference

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_reference(), "run: make docs"


def test_every_section_shows_its_help() -> None:
    sections = render_reference().split("\n## pgstrata ")[1:]
    assert len(sections) > 15
    for section in sections:
        usage = section.split("\n")[3]
        assert usage.startswith("Usage: pgstrata"), section[:200]
        assert usage.count("...") == usage.count("]...") + usage.count("}..."), "the parser adds the dots itself"
        assert not re.search(r"\.\.\.[]}]|\[\[", usage), usage


def test_a_list_of_verbs_has_their_whole_sentences() -> None:
    listed = render_reference().split("\nCommands:\n")[1:]
    assert len(listed) == 3
    for section in listed:
        assert "..." not in section.split("\n\n")[0]
