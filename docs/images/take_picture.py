"""Takes the picture of a real report that README and docs show.

    pgstrata report out/demo --format html
    python docs/images/take_picture.py out/demo docs/images/report.png

Light scheme, 1280 px wide, from the top to the end of the throughput section.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def main() -> int:
    directory, picture = Path(sys.argv[1]), Path(sys.argv[2])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        page.goto((directory / "report.html").resolve().as_uri())
        page.locator("html[data-drawn='true']").wait_for()
        end = page.evaluate("document.querySelector('#throughput').getBoundingClientRect().bottom + window.scrollY")
        page.screenshot(path=picture, full_page=True, clip={"x": 0, "y": 0, "width": 1280, "height": end})
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
