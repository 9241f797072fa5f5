"""The page of a history in headless Chromium: drawn, readable on a telephone, asking nobody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench_history import Past, make_sessions

from pgstrata.analyze.sessions.history import trace_history
from pgstrata.report.sentences.history import write_history
from pgstrata_fake.campaigns import NASTY

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
CHROMIUM = Path("/usr/bin/chromium")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="Chromium is not installed: apt-get install chromium"),
]


def page_of(folder: Path) -> Path:
    """Of two stacks, one of which has a nasty name, and changes."""
    made = make_sessions(Past(30, stacks=2, step=0.9, at=20), np.random.default_rng(1))
    named = [
        replace(
            one,
            specs={NASTY if name == "s0" else name: spec for name, spec in one.specs.items()},
            values={NASTY if name == "s0" else name: values for name, values in one.values.items()},
        )
        for one in made
    ]
    return write_history(trace_history(named, "reference"), folder / "history.html")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_levels_and_changes_are_drawn_and_nothing_is_asked_for(tmp_path: Path, width: int, scheme: str) -> None:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        try:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            complaints: list[str] = []
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("dialog", lambda dialog: complaints.append(dialog.message))
            page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else complaints.append(r.url))
            page.goto(page_of(tmp_path).as_uri())
            assert page.locator(".past svg").count() == 2
            assert page.locator(".past rect").count() == 1
            box = page.locator(".past .levels").first.bounding_box()
            assert box is not None
            assert box["width"] > 0.5 * page.locator(".past svg").first.bounding_box()["width"]
            assert page.locator(".past").first.get_attribute("aria-label").startswith(f"{NASTY} against reference: ")
            page.locator("summary").first.click()
            assert page.locator("tbody tr:visible").count() == 30
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert complaints == []
        finally:
            browser.close()
