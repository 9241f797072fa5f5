"""Page and pictures as files: self-contained, escaped, complete; errors that help."""

from __future__ import annotations

import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.findings import Findings, PublishedFinding
from pgstrata.errors import PreflightError, UsageError
from pgstrata.record.reader import CampaignData, read
from pgstrata.report.html import breakable
from pgstrata.report.pictures.drawing import Sample, draw
from pgstrata.report.render import render
from pgstrata.report.tables.agreement import add_published
from pgstrata_docs.report_json import render_reference

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


class Page(HTMLParser):
    """Collects what the tests ask about."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, text: str) -> None:
        self.text += text

    def values(self, attribute: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(attribute))]


@pytest.fixture(scope="module")
def page_text(data: CampaignData, findings: Findings, campaign_directory: Path) -> str:
    figures = [
        PublishedFinding(
            study="study", stack=name, cell=findings.cells[0].id, metric="tps", value=1.0, baseline="xfs", ratio=0.5
        )
        for name in ("ext4", "zfs")
    ]
    joined = add_published(findings, "an article <i>x</i>", figures)
    (path,) = render(data, joined, ["html"], campaign_directory).paths
    assert path == campaign_directory / "report.html"
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("missing", ["altair", "vl_convert"])
def test_pictures_without_their_extra_are_refused_before_anything_is_written(
    data: CampaignData, findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(PreflightError, match=f"needs the package {missing}") as refused:
        render(data, findings, ["html", "svg"], tmp_path / "out")
    assert refused.value.hint.endswith("-m pip install 'pgstrata[pictures]'")
    assert not (tmp_path / "out").exists()


def test_the_page_refers_to_nothing_outside(page_text: str) -> None:
    page = Page(page_text)
    for attribute in ("href", "src", "action", "data"):
        for value in page.values(attribute):
            assert re.match(r"(#|data:|trials/)", value), value
    metas = [attributes for tag, attributes in page.tags if tag == "meta"]
    policy = next(m["content"] for m in metas if m.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "@import" not in page_text


def test_links_lead_to_raw_files_that_are_there(page_text: str, campaign_directory: Path) -> None:
    links = {unquote(href) for href in Page(page_text).values("href") if href.startswith("trials/")}
    files = [p for p in (campaign_directory / "trials").rglob("*") if p.is_file()]
    every = {p.relative_to(campaign_directory).as_posix() for p in files}
    assert links == every


def test_names_are_text_wherever_they_stand(page_text: str) -> None:
    assert "<script>alert" not in page_text
    assert "<i>x</i>" not in page_text
    scripts = [attributes for tag, attributes in Page(page_text).tags if tag == "script"]
    assert [s.get("type") for s in scripts] == ["application/json", None]


def test_what_is_drawn_is_what_was_found(page_text: str, findings: Findings, data: CampaignData) -> None:
    match = re.search(r'<script type="application/json" id="payload">(.*?)</script>', page_text, re.DOTALL)
    assert match is not None
    payload = json.loads(match[1])
    assert payload["stacks"] == [s.name for s in findings.stacks]
    drawn = {payload["stacks"][m["stack"]]: m["runs"] for m in payload["cells"][0]["metrics"]["tps"]}
    for stack in findings.stacks:
        assert drawn[stack.name] == pytest.approx(list(stack.metrics["tps"].runs), rel=1e-5)
    assert len(payload["runs"]) == sum(1 for _ in data.cells(valid_only=False))
    assert sum(run["valid"] for run in payload["runs"]) == sum(1 for _ in data.cells())


def test_failures_exclusions_and_missing_figures_are_told(page_text: str) -> None:
    text = Page(page_text).text
    assert "server closed the connection unexpectedly" in text
    assert "foreign load: 41 %" in text
    assert "Beside the published figures" in text
    assert "n/a" in text


def test_how_runs_were_prewarmed_is_told(page_text: str, data: CampaignData) -> None:
    runs = sum(len(t.cells) for t in data.trials if t.trial.stack == "xfs")
    assert f"<td>sequential read ({runs} runs)</td>" in page_text


def test_the_same_record_gives_the_same_page(data: CampaignData, findings: Findings, tmp_path: Path) -> None:
    texts = [render(data, findings, ["html"], tmp_path / name).paths[0].read_text() for name in ("a", "a")]
    assert texts[0] == texts[1]


def test_a_zip_has_no_links_to_files_in_it(campaign_directory: Path, tmp_path: Path) -> None:
    archive = Path(shutil.make_archive(str(tmp_path / "campaign"), "zip", campaign_directory))
    data = read(archive)
    (path,) = render(data, judge(data), ["html"], tmp_path).paths
    assert not [href for href in Page(path.read_text()).values("href") if href.startswith("trials/")]


def test_pictures_are_made_for_every_chart_with_data(data: CampaignData, findings: Findings, tmp_path: Path) -> None:
    paths = render(data, findings, ["svg", "png"], tmp_path).paths
    names = {p.stem for p in paths}
    assert names >= {
        "throughput",
        "timeline",
        "latency",
        "load",
        "space",
        "tradeoff",
        "drift",
        "jitter",
        "devices",
        "time",
    }
    assert {p.suffix for p in paths} == {".svg", ".png"}
    assert all(p.parent == tmp_path / "charts" for p in paths)
    svg = (tmp_path / "charts" / "throughput.svg").read_text()
    assert "<script>" not in svg
    assert "loop file on ext4 on /dev/vda" in svg
    runs = sum(len(m.runs) for m in draw(data, findings, Sample.of(data)).cells[0].metrics["tps"])
    assert len(re.findall(r'aria-roledescription="point"', svg)) == runs + len(findings.stacks)
    assert (tmp_path / "charts" / "throughput.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_format_names_the_known_ones(data: CampaignData, findings: Findings, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown format 'pdf'") as raised:
        render(data, findings, ["pdf"], tmp_path)
    assert "html" in raised.value.hint


def test_a_folder_that_cannot_be_written_is_refused(data: CampaignData, findings: Findings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PreflightError, match="cannot write the report to"):
        render(data, findings, ["html"], tmp_path / "file")


def test_the_committed_reference_is_that_of_the_models() -> None:
    committed = (ROOT / "docs" / "reference" / "report-json.md").read_text(encoding="utf-8")
    assert committed == render_reference(), "run: python -m pgstrata_docs.report_json > docs/reference/report-json.md"


def test_checks_that_held_are_folded_and_settings_that_differ_stand_in_a_table(
    data: CampaignData, findings: Findings, tmp_path: Path
) -> None:
    (path,) = render(data, findings, ["html"], tmp_path).paths
    text = path.read_text(encoding="utf-8")
    assert text.count("<summary>3 checks held</summary>") == len(data.campaign.stacks)
    assert '<th scope="row" class="mono">full_page_writes</th>' in text
    assert "3 settings recorded, 2 not at the default" in text


def test_notation_breaks_at_its_marks_and_stays_text() -> None:
    assert breakable("loop(size=3g)/ext4@a=b") == "loop(<wbr>size=3g)/<wbr>ext4<wbr>@a=b"
    assert breakable("<b>/x") == "&lt;b&gt;/<wbr>x"
