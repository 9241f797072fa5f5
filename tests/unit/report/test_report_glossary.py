"""One source of definitions: on the page's terms, in its list, in the docs."""

from __future__ import annotations

import re
from pathlib import Path

from pgstrata.analyze.findings import Findings
from pgstrata.record.reader import CampaignData
from pgstrata.report.render import render
from pgstrata.report.sentences.glossary import TERMS, explained
from pgstrata_docs.glossary import render_glossary

ROOT = Path(__file__).parents[3]


def test_terms_are_explained_where_they_stand_and_listed(
    data: CampaignData, findings: Findings, tmp_path: Path
) -> None:
    (path,) = render(data, findings, ["html"], tmp_path).paths
    text = path.read_text()
    assert len(re.findall(r"<dt>[^<]+</dt><dd>", text[text.index('id="terms"') :])) >= len(TERMS)
    head = text[text.index('<table class="verdicts">') : text.index("</thead>")]
    assert {"stack", "jitter", "stall", "load", "space", "durability"} <= set(re.findall(r'data-tip="([^;]+);', head))
    answer = text[text.index('id="answer"') : text.index('id="verdicts"')]
    assert 'data-tip="undecided;' in answer


def test_what_is_no_term_stays_text() -> None:
    assert explained("<b>") == "&lt;b&gt;"
    assert explained("Undecided").startswith('<span class="term"')


def test_a_meaning_is_one_row_of_a_tooltip_and_of_a_table() -> None:
    assert not [t.name for t in TERMS if "; " in t.meaning or "|" in t.meaning]
    forms = [form.lower() for t in TERMS for form in (t.name, *t.forms)]
    assert len(forms) == len(set(forms))


def test_the_committed_page_is_that_of_the_terms() -> None:
    committed = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    assert committed == render_glossary(), "run: make docs"
