"""The pages: links lead somewhere, commands and options exist, stacks and campaigns that are shown are valid."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from pgstrata.cli.main import app
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.notation.stack import parse_stack

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LAYERS = sorted(p for p in (ROOT / "docs" / "layers").glob("*.md") if p.name != "README.md")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(text: str) -> str:
    """Without code, where brackets are no links."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^    .*$", "", text, flags=re.MULTILINE))


def anchors(page: Path) -> set[str]:
    """Of the headings: lower case, blanks as hyphens, other signs left out."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(prose(page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{link}: {target.name} has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_tables_have_a_head_and_no_gaps(page: Path) -> None:
    """Rows behind an empty line are no table; every row has as many cells as the head."""
    for table in re.findall(r"(?:^\|.*\n)+", page.read_text(encoding="utf-8") + "\n", re.MULTILINE):
        head, rule, *rows = table.splitlines()
        assert re.fullmatch(r"\|( :?---:? \|)+", rule), f"{head} heads no table"
        widths = {len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", row))) for row in (head, rule, *rows)}
        assert len(widths) == 1, f"rows below {head} differ in width"


def test_every_page_can_be_reached() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        links = (link.partition("#")[0] for link in _LINK.findall(prose(page.read_text(encoding="utf-8"))))
        waiting += [target for link in links if link.endswith(".md") and (target := (page.parent / link).resolve())]
    assert [page_id(p) for p in PAGES if p not in reached and p.name != "CHANGELOG.md"] == []


def code_lines(text: str) -> Iterator[str]:
    """Lines of code, those that end with a backslash joined with the next."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^    (.*)$", text, flags=re.MULTILINE)
    for line in re.sub(r"\\\n\s*", " ", "\n".join([*fenced, *indented])).splitlines():
        yield line.strip()


def commands(page: Path) -> Iterator[list[str]]:
    for line in code_lines(page.read_text(encoding="utf-8")):
        match = re.match(r"(?:\$ )?(?:\.venv/bin/)?pgstrata (.+)$", line)
        if match is not None:
            yield shlex.split(match[1], comments=True)


def check_command(words: list[str]) -> None:
    """Verb, sub-verb and every option are the program's."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        known = command.commands.get(rest[0])
        if known is None:
            assert rest[0].isupper(), f"{rest[0]} is no verb"
            return
        command, rest = known, rest[1:]
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    options |= {"--help", "-h"}
    for word in rest:
        if word == "--":
            return
        if word.startswith("--"):
            assert word.partition("=")[0] in options, f"{word} is no option of {' '.join(words)}"


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent.name != "reference"], ids=page_id)
def test_commands_are_the_programs(page: Path) -> None:
    for words in commands(page):
        check_command(words)


@pytest.mark.parametrize("page", LAYERS, ids=page_id)
def test_stacks_of_the_layers_are_valid(page: Path) -> None:
    shown = [re.split(r"\s{2,}", line)[0] for line in code_lines(page.read_text(encoding="utf-8")) if line]
    assert shown
    for text in shown:
        parse_stack(text)


def campaigns(page: Path) -> Iterator[str]:
    """Blocks of code that are a whole campaign: they name stacks in a line of its own."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, flags=re.MULTILINE)
    blocks += [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in indented]
    yield from (block for block in blocks if re.search(r"^stacks:", block, re.MULTILINE))


WITH_CAMPAIGNS = [p for p in PAGES if p.name != "CHANGELOG.md" and list(campaigns(p))]


@pytest.mark.parametrize("page", WITH_CAMPAIGNS, ids=page_id)
def test_campaigns_are_valid(page: Path, tmp_path: Path) -> None:
    for number, text in enumerate(campaigns(page)):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text, encoding="utf-8")
        assert load_campaign(file).stacks


def test_no_page_asks_for_two_formats_on_stdout() -> None:
    """`report` refuses that: each of them is a whole document."""
    asked = [m[1].split(",") for page in PAGES for m in re.finditer(r"--format ([a-z]+(?:,[a-z]+)*)", page.read_text())]
    assert asked
    assert not [formats for formats in asked if len({"json", "md", "csv"} & set(formats)) > 1]
