"""The page in headless Chromium: everything drawn, nothing requested, usable by mouse and keyboard, wide and narrow."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from crashed import write_crash
from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.findings import Findings
from pgstrata.record.reader import CampaignData, read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.report.pictures.drawing import Sample, draw, is_cut
from pgstrata.report.render import render
from pgstrata.spec.crash import crash_campaign, named_stacks
from pgstrata_fake.campaigns import NASTY, Shape, write_campaign

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="Chromium is not installed: apt-get install chromium"),
]


@dataclass(frozen=True)
class Campaign:
    data: CampaignData
    findings: Findings
    page: Path

    def runs(self, cell: str) -> int:
        return sum(s.n for s in self.findings.stacks if s.cell == cell)


@dataclass
class Opened:
    """A page with everything that it must not do written down."""

    page: Any
    complaints: list[str] = field(default_factory=list)

    def count(self, selector: str) -> int:
        return int(self.page.locator(selector).count())

    def visible(self, selector: str) -> int:
        return int(self.page.locator(f"{selector}:visible").count())


def make(directory: Path, shape: Shape) -> Campaign:
    data = read(write_campaign(directory, shape))
    findings = judge(data)
    return Campaign(data, findings, render(data, findings, ["html"], directory).paths[0])


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    stacks = ("ext4", "xfs", "btrfs", "tmpfs", NASTY)
    return make(tmp_path_factory.mktemp("page") / "one", Shape(stacks=stacks, blocks=4, duration_s=45))


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    shape = Shape(stacks=("ext4", "xfs"), blocks=3, duration_s=20, scripts=("tpcb-like", "simple-update"),
                  scales=(50, 100), clients=(4, 8))  # fmt: skip
    return make(tmp_path_factory.mktemp("page") / "grid", shape)


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    shape = Shape(
        stacks=("ext4", "xfs"), blocks=3, duration_s=20, incidents=False, matched_rates=(500.0, 900.0), soak_s=90
    )
    return make(tmp_path_factory.mktemp("page") / "later", shape)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    contexts = []
    opened: list[Opened] = []

    def open_(path: Path, width: int = 1280, scheme: str = "light", **options: Any) -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        contexts.append(context)
        page = context.new_page()
        one = Opened(page)
        page.on("console", lambda message: one.complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: one.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: one.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: one.complaints.append(request.url) if _outside(request.url, path) else None)
        page.goto(path.as_uri())
        opened.append(one)
        return one

    yield open_
    for context in contexts:
        context.close()
    assert [complaint for one in opened for complaint in one.complaints] == []


def _outside(url: str, path: Path) -> bool:
    return not url.startswith((path.as_uri(), "data:"))


def test_every_chart_has_a_mark_for_every_figure(campaign: Campaign, open_page: Any) -> None:
    view = open_page(campaign.page)
    stacks = len(campaign.findings.stacks)
    runs = campaign.runs("tpcb-like-s50-c8")
    assert runs == sum(1 for _ in campaign.data.cells())
    assert view.count("#chart-intervals .run-mark") == runs
    assert view.count("#chart-intervals .estimate") == stacks
    assert view.count("#chart-latency .run-mark") == runs
    assert view.count("#chart-drift .run-mark") == runs
    assert view.count("#chart-timeline .smooth") == stacks
    assert view.count("#chart-timeline .seconds") == stacks
    assert view.count("#chart-timeline .checkpoint") == stacks
    assert view.count("#chart-devices .device-line") == 2 * stacks
    assert view.count("#chart-space-bars .segment") == 4 * stacks
    assert view.count("#chart-wal .segment") == stacks
    assert view.count("#chart-load .segment") == 5 * stacks
    assert view.count("#chart-time .segment") == 2 * stacks, "sessions that flush WAL, and those between statements"
    assert view.count("#time table") == 3
    assert view.count("#time tbody tr") == 3 * stacks
    whys = campaign.findings.whys
    assert len(whys) == stacks - 1
    assert view.count("#time .sentences li") == sum(w.beyond_noise for w in whys) + any(
        not w.beyond_noise for w in whys
    )
    assert view.count("#chart-tradeoff .estimate") == stacks
    assert view.count(".matrix td[data-tip]") == stacks * (stacks - 1)
    assert view.count("#verdicts tbody .strip .run") == runs
    assert view.count("#chart-timeline .stall") >= 1
    assert "no run of this cell was scheduled by rate" in view.page.locator("#left-out").inner_text()
    assert view.visible("#figure-percentiles") == 0


def test_a_line_has_a_point_for_every_second(campaign: Campaign, open_page: Any) -> None:
    view = open_page(campaign.page)
    paths = view.page.locator("#chart-timeline .smooth").evaluate_all("nodes => nodes.map(n => n.getAttribute('d'))")
    assert [path.count("L") + path.count("M") for path in paths] == [45] * len(campaign.findings.stacks)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_window(
    campaign: Campaign, grid: Campaign, open_page: Any, width: int, scheme: str
) -> None:
    for shown in (campaign, grid):
        view = open_page(shown.page, width, scheme)
        wide = view.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide == 0
        view.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert view.page.evaluate(_CUT_OFF) == []
        assert view.page.evaluate("document.documentElement.scrollWidth") == width
        assert view.count("#chart-intervals .run-mark") > 0


def test_a_narrow_window_shows_every_stack_of_the_grid_and_whole_chips(grid: Campaign, open_page: Any) -> None:
    view = open_page(grid.page, 400)
    inside = "e => e.scrollWidth - e.clientWidth"
    assert view.page.locator("#grid .scroll").evaluate(inside) == 0
    assert view.page.locator("#stack-filters").evaluate(inside) == 0
    assert view.visible("#grid td.winner") == 0
    rows = view.count("#grid tbody tr")
    assert view.visible("#grid .folded-best") == rows
    wide = open_page(grid.page, 1280)
    assert (wide.visible("#grid td.winner"), wide.visible("#grid .folded-best")) == (rows, 0)


_CUT_OFF = """() => [...document.querySelectorAll(".card.flush:not(.scroll)")]
    .filter(card => card.scrollWidth > card.clientWidth)
    .map(card => [card.scrollWidth - card.clientWidth, card.innerText.slice(0, 80)])"""
_CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_that_readers_need(campaign: Campaign, open_page: Any, scheme: str) -> None:
    view = open_page(campaign.page, 1280, scheme)
    assert view.page.evaluate(_CONTRAST) == []


def test_a_name_that_looks_like_a_script_is_shown_as_text(campaign: Campaign, open_page: Any) -> None:
    view = open_page(campaign.page)
    assert view.page.locator(f".verdicts tr[data-stack='{NASTY}']").is_visible()
    assert NASTY in view.page.locator("#stack-filters").inner_text()
    view.page.locator("#chart-intervals svg.plot").focus()
    for _ in range(campaign.runs("tpcb-like-s50-c8") + len(campaign.findings.stacks)):
        view.page.keyboard.press("ArrowDown")
        if NASTY in view.page.locator("#tip").inner_text():
            break
    assert NASTY in view.page.locator("#tip").inner_text()


def test_stacks_are_hidden_and_shown_by_mouse_and_by_keyboard(campaign: Campaign, open_page: Any) -> None:
    view = open_page(campaign.page)
    before = view.count("#chart-intervals .run-mark")
    of_tmpfs = next(s.n for s in campaign.findings.stacks if s.name == "tmpfs")
    box = view.page.get_by_label("show tmpfs")
    box.click()
    assert view.count("#chart-intervals .run-mark") == before - of_tmpfs
    assert view.visible("#verdicts tbody tr") == len(campaign.findings.stacks) - 1
    assert view.count("#chart-timeline svg.plot") == len(campaign.findings.stacks) - 1
    box.focus()
    view.page.keyboard.press("Space")
    assert view.count("#chart-intervals .run-mark") == before
    assert view.visible("#verdicts tbody tr") == len(campaign.findings.stacks)


def test_a_run_leads_to_its_trial_and_its_raw_files_by_mouse(campaign: Campaign, open_page: Any) -> None:
    view = open_page(campaign.page)
    view.page.locator("#chart-intervals .run-mark").first.click()
    view.page.wait_for_url(re.compile("#trial-"))
    row = view.page.locator("tr.target")
    row.wait_for()
    row.locator("summary").click()
    link = row.locator("a", has_text="raw/pgbench.out")
    assert (campaign.page.parent / link.get_attribute("href")).is_file()


def test_a_run_leads_to_its_trial_by_keyboard(campaign: Campaign, open_page: Any) -> None:
    view = open_page(campaign.page)
    view.page.locator("#chart-intervals svg.plot").focus()
    view.page.keyboard.press("ArrowRight")
    assert view.page.locator("#tip").is_visible()
    assert view.count("#chart-intervals .active") == 1
    view.page.keyboard.press("Enter")
    view.page.wait_for_url(re.compile("#trial-"))
    view.page.locator("tr.target").wait_for()


def test_drill_down_opens_by_keyboard_and_from_the_table(campaign: Campaign, open_page: Any) -> None:
    view = open_page(campaign.page)
    summary = view.page.locator("#stack-0 > summary")
    summary.focus()
    view.page.keyboard.press("Enter")
    body = view.page.locator("#stack-0 .stack-body")
    assert body.is_visible()
    assert "3 checks held" in body.inner_text()
    assert "mount options" not in body.inner_text()
    body.locator("summary", has_text="3 checks held").click()
    assert "mount options" in body.inner_text()
    assert "server closed the connection unexpectedly" in body.inner_text()
    view.page.locator("#verdicts .stack-link", has_text="xfs").first.click()
    view.page.locator("#stack-1 .stack-body").wait_for()


def test_the_cursor_tells_the_second_under_it(campaign: Campaign, open_page: Any) -> None:
    view = open_page(campaign.page)
    panel = view.page.locator("#chart-timeline svg.plot").first
    panel.scroll_into_view_if_needed()
    panel.hover()
    assert "15 s mean" in view.page.locator("#tip").inner_text()
    assert view.count("#chart-timeline .cursor[visibility='visible']") == len(campaign.findings.stacks)
    panel.focus()
    view.page.keyboard.press("ArrowRight")
    first = view.page.locator("#tip").inner_text()
    view.page.keyboard.press("Shift+ArrowRight")
    assert view.page.locator("#tip").inner_text() != first


def test_controls_change_what_is_drawn_and_keep_the_focus(campaign: Campaign, open_page: Any) -> None:
    view = open_page(campaign.page)
    view.page.locator("#timeline-controls button", has_text="Latency").click()
    assert view.count("#chart-timeline .seconds") == 0
    assert view.page.evaluate("document.activeElement.textContent") == "Latency"
    view.page.locator("#timeline-controls select").select_option("1")
    # In block 1 the trial of the first stack failed.
    assert view.count("#chart-timeline svg.plot") == len(campaign.findings.stacks) - 1
    view.page.locator("#metric-controls select").select_option("longest_stall_s")
    assert "Longest stall" in view.page.locator("#chart-metric svg.plot").get_attribute("aria-label")
    view.page.locator("#device-controls button", has_text="Flushes").click()
    assert "Flushes" in view.page.locator("#chart-devices svg.plot").first.get_attribute("aria-label")


def test_the_grid_is_filtered_by_its_factors(grid: Campaign, open_page: Any) -> None:
    view = open_page(grid.page)
    cells = grid.findings.cells
    assert len(cells) == 8
    assert view.count("#chart-grid svg.plot") == 4 + 4, "over clients and over scale"
    assert view.count("#chart-grid .estimate") == 2 * 2 * len(cells)
    assert view.count(".heat tbody tr") == len(cells)
    assert view.count(".heat td[data-tip]") == 2 * len(cells)
    assert view.visible("#verdicts .cell-view") == 1
    for select, value in zip(
        view.page.locator("#cell-filters select").all(), ("simple-update", "100", "4"), strict=True
    ):
        select.select_option(value)
    title = view.page.locator("#verdicts .cell-title:visible").inner_text()
    assert title == "simple-update, scale 100, 4 clients"
    assert view.count("#chart-intervals .run-mark") == grid.runs("simple-update-s100-c4")
    view.page.locator(".heat button", has_text="tpcb-like, scale 100, 8 clients").click()
    assert view.page.locator("#verdicts .cell-title:visible").inner_text() == "tpcb-like, scale 100, 8 clients"


def test_latency_at_matched_load_has_a_panel_a_rate_and_soak_runs_stand_apart(later: Campaign, open_page: Any) -> None:
    view = open_page(later.page)
    assert view.count("#cell-filters select") == 0
    assert view.count("#chart-percentiles svg.plot") == 2
    assert view.count("#chart-percentiles .estimate") == 2 * 4 * 2
    assert "500 transactions a second scheduled" in view.page.locator("#latency .sentences").inner_text()
    assert view.count("#chart-intervals .run-mark") == later.runs("tpcb-like-s50-c8") == 6
    assert view.count("#chart-drift .run-mark") == 6
    points = "nodes => nodes.map(n => n.getAttribute('d').split('L').length)"
    assert view.page.locator("#chart-timeline .smooth").evaluate_all(points) == [20, 20]
    view.page.locator("#timeline-controls select").select_option("soak")
    assert view.page.locator("#chart-timeline .smooth").evaluate_all(points) == [90, 90]


def test_the_scheme_follows_the_system_and_can_be_chosen(campaign: Campaign, open_page: Any) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = open_page(campaign.page, scheme="light")
    dark = open_page(campaign.page, scheme="dark")
    grounds = light.page.evaluate(ground), dark.page.evaluate(ground)
    assert grounds[0] != grounds[1]
    button = light.page.locator("#theme")
    button.focus()
    light.page.keyboard.press("Enter")
    assert light.page.evaluate(ground) == grounds[0]
    light.page.keyboard.press("Enter")
    assert light.page.evaluate(ground) == grounds[1]
    assert button.get_attribute("aria-label") == "Colour scheme: dark"


def test_a_campaign_without_a_valid_run_has_no_empty_charts_and_says_why(tmp_path: Path, open_page: Any) -> None:
    empty = write_campaign(tmp_path / "empty", Shape(stacks=("ext4", "xfs"), blocks=1, duration_s=10))
    shutil.rmtree(empty / "trials")
    data = read(empty)
    view = open_page(render(data, judge(data), ["html"], empty).paths[0])
    assert view.visible("figure.card") == 0
    assert view.visible(":is(#throughput, #latency, #devices, #drift)") == 0
    assert view.visible(".toolbar nav a:is([href='#throughput'], [href='#devices'])") == 0
    left_out = view.page.locator("#left-out").inner_text()
    assert "Second by second (no progress" in left_out
    assert left_out.count("; ") == view.count(".chart .nothing") - 1 > 8
    assert "no valid run" in view.page.locator("#verdicts").inner_text()


def test_a_page_of_power_cuts_alone_names_no_charts(tmp_path: Path, open_page: Any) -> None:
    campaign = crash_campaign(named_stacks(["ext4"]))
    with CampaignDirectory.create_or_open(tmp_path / "out", campaign, "crash") as directory:
        write_crash(directory, "ext4", verdict="held", states=60)
    data = read(tmp_path / "out")
    view = open_page(render(data, judge(data), ["html"], tmp_path).paths[0])
    assert view.visible("#power-cuts") == 1
    assert view.visible("#left-out") == 0


def test_without_scripts_the_answer_and_the_tables_are_there(campaign: Campaign, open_page: Any) -> None:
    view = open_page(campaign.page, java_script_enabled=False)
    assert view.visible("#verdicts tbody tr") == len(campaign.findings.stacks)
    assert view.page.locator(".sentence.lead").is_visible()


def test_on_paper_there_are_no_controls(campaign: Campaign, open_page: Any) -> None:
    view = open_page(campaign.page)
    view.page.emulate_media(media="print", color_scheme="dark")
    assert view.visible(".toolbar") == 0
    assert view.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert view.page.pdf()[:5] == b"%PDF-"


def test_a_cut_or_logarithmic_axis_says_so(campaign: Campaign, later: Campaign, open_page: Any) -> None:
    apart = open_page(campaign.page)
    assert "logarithmic axis" in apart.page.locator("#chart-intervals").inner_html()
    assert apart.count("#chart-intervals .cut-mark") == 0
    near = open_page(later.page)
    assert is_cut(draw(later.data, later.findings, Sample.of(later.data)).cells[0].metrics["tps"])
    assert "cut axis: it does not begin at 0" in near.page.locator("#chart-intervals").inner_html()
    assert near.count("#chart-intervals .cut-mark") == 1
    assert near.page.locator("#verdicts .strip-note").first.inner_text() == "cut axis"
