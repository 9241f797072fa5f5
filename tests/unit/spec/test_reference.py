"""The reference page is the one that the models write, and leaves nothing out."""

from __future__ import annotations

from pathlib import Path

from pgstrata.spec.file.schema import campaign_schema
from pgstrata_docs.campaign import render_reference

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "campaign.md"


def test_the_page_in_docs_is_up_to_date() -> None:
    assert PAGE.read_text() == render_reference(), "run: make docs"


def test_every_key_of_the_schema_is_on_the_page() -> None:
    page = render_reference()
    schema = campaign_schema()
    shapes = [schema, *schema["$defs"].values()]
    keys = {key for shape in shapes for key in shape.get("properties", {})} - {"loop", "disk", "name"}
    assert not [key for key in keys if f"`{key}`" not in page]


def test_every_link_leads_somewhere() -> None:
    page = render_reference()
    titles = {line[3:].replace(": ", "-").replace(" ", "-") for line in page.splitlines() if line.startswith("## ")}
    targets = {part.split(")")[0] for part in page.split("](#")[1:]}
    assert targets <= titles
