"""docs/reference/glossary.md, written from the terms of reports: `python -m pgstrata_docs.glossary`."""

from __future__ import annotations

import sys

from pgstrata.report.sentences.glossary import TERMS, TITLE


def render_glossary() -> str:
    """Return the page of the documentation."""
    lines = [
        f"# {TITLE}",
        "",
        "Written from the program by `make docs`; the page of a report explains the same words.",
        "",
    ]
    lines += ["| term | meaning |", "| --- | --- |", *(f"| {term.name} | {term.meaning} |" for term in TERMS)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render_glossary())
