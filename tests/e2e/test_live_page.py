"""The live page in headless Chromium, of a campaign that goes on meanwhile; Prometheus with the shipped dashboard."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from awaiting import wait_until
from live_view import TOKEN, RunningTrial, Served, serving
from pgstrata_fake.campaigns import NASTY, Shape, write_campaign

for name in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(name, reason=f"{name} is not installed: pip install 'pgstrata[watch]'")

CHROMIUM = Path("/usr/bin/chromium")
DASHBOARD = Path(__file__).parents[2] / "dashboards" / "grafana.json"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_campaign(tmp_path / "c", Shape(stacks=("ext4", "xfs", NASTY), blocks=6, duration_s=3))


@pytest.fixture
def running(directory: Path, tmp_path: Path) -> RunningTrial:
    (tmp_path / "aside").mkdir()
    one = RunningTrial.of(directory, tmp_path / "aside")
    one.measure()
    one.second(1, 1000.0)
    return one


@pytest.fixture
def served(directory: Path, running: RunningTrial) -> Iterator[Served]:
    with serving(directory) as one:
        yield one


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    if not CHROMIUM.exists():
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_figures_move_while_a_campaign_runs(
    served: Served, running: RunningTrial, browser: Any, width: int, scheme: str
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("request", lambda r: None if r.url.startswith((served.address, "data:")) else complaints.append(r.url))
    page.goto(f"{served.address}?token={TOKEN}")
    assert TOKEN not in page.url
    figure = page.locator("#live-running .chosen-figure")
    figure.get_by_text("1,000 TPS").wait_for(timeout=100_000)
    page.locator("#chart-intervals .estimate").first.wait_for(timeout=100_000)
    running.second(2, 2345.0)
    figure.get_by_text("2,345 TPS").wait_for(timeout=100_000)
    assert page.locator("#live-running svg .smooth").count() == 1
    assert "measure" in page.locator("#live-running").inner_text()
    running.finish()
    page.get_by_text("No trial runs.").wait_for(timeout=100_000)
    assert page.locator("#live-facts dd").first.inner_text() == "18"
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert NASTY in page.locator("#live-rows").inner_text()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(246, 246, 243)", "dark": "rgb(16, 19, 21)"}[scheme]
    assert complaints == []
    context.close()


_LISTENS = re.compile(r'"Listening on" address=127\.0\.0\.1:(\d+)\s')


def queries() -> list[str]:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]


def test_the_dashboard_asks_for_metrics_that_there_are(served: Served) -> None:
    wait_until(lambda: "pgstrata_stack_estimate" in served.get("/metrics")[1], "a verdict")
    text = served.get("/metrics")[1]
    for query in queries():
        for name in re.findall(r"pgstrata_\w+", query):
            assert re.search(rf"^{name}[{{ ]", text, re.MULTILINE), f"{name} of {query}"


def test_prometheus_scrapes_it_and_the_queries_of_the_dashboard_return_data(served: Served, tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Prometheus is not installed: apt-get install prometheus")
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "prometheus.yml").write_text(
        "scrape_configs:\n"
        "  - job_name: pgstrata\n    scrape_interval: 1s\n"
        f"    authorization: {{credentials_file: {tmp_path}/token}}\n"
        f"    static_configs: [{{targets: ['127.0.0.1:{served.port}']}}]\n"
    )
    argv = [
        program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
        "--web.listen-address=127.0.0.1:0",
    ]  # fmt: skip
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        try:
            wait_until(lambda: _LISTENS.search((tmp_path / "log").read_text()) is not None, "Prometheus to listen")
            found = _LISTENS.search((tmp_path / "log").read_text())
            assert found is not None
            port = int(found[1])
            for query in queries():
                wait_until(lambda query=query: bool(_asked(port, query)), f"data of {query}")  # type: ignore[misc]
        finally:
            process.terminate()


def _asked(port: int, query: str) -> list[Any]:
    where = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(where, timeout=60) as answer:
            return list(json.load(answer)["data"]["result"])
    except OSError:
        return []
