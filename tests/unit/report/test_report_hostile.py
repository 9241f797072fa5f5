"""What a foreign record says is read in every format, and acts in none."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from pgstrata.analyze.campaign.judge import judge
from pgstrata.cli.output import print_notice, print_text
from pgstrata.record.frames import load_frames
from pgstrata.record.reader import read
from pgstrata.report.render import render
from pgstrata.report.terminal import render_terminal
from pgstrata_fake.campaigns import Shape, write_campaign

HOSTILE = "=HYPERLINK(1)\x1b]0;x\x07 \x9b2J \u202eabc\u2066 <script>\x00 \u200b|`a\nb` # c"


def _change(path: Path, **values: Any) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    content.update(values)
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A campaign of two stacks whose every free text is hostile, and with a failed trial."""
    directory = write_campaign(tmp_path / "campaign", Shape(stacks=("ext4", "xfs"), blocks=2, duration_s=5))
    for folder in sorted((directory / "trials").iterdir()):
        _change(folder / "facts.json", name=HOSTILE, medium=HOSTILE, told={HOSTILE: HOSTILE})
        _change(folder / "verdict.json", reason=HOSTILE, hint=HOSTILE)
    _change(sorted((directory / "trials").iterdir())[0] / "verdict.json", status="failed")
    return directory


def _acting(text: str) -> set[str]:
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t"}


def test_no_format_holds_what_acts(hostile: Path, tmp_path: Path) -> None:
    data = read(hostile)
    findings = judge(data)
    texts = [render(data, findings, [name], tmp_path).texts[name] for name in ("json", "md", "csv")]
    paths = render(data, findings, ["html", "svg"], tmp_path).paths
    texts += [path.read_text(encoding="utf-8") for path in paths] + [render_terminal(data, findings)]
    for text in texts:
        assert _acting(text) == set()
    assert "\n# c" not in texts[1]  # no line of Markdown begins inside of a text
    assert "\nb" not in texts[1]


def test_no_cell_of_a_table_is_a_formula(hostile: Path, tmp_path: Path) -> None:
    data = read(hostile)
    written = load_frames(hostile).export(tmp_path / "out")
    texts = [render(data, judge(data), ["csv"], tmp_path).texts["csv"]]
    texts += [path.read_text(encoding="utf-8") for path in written if path.suffix == ".csv"]
    for text in texts:
        cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
        assert not any(cell[:1] in ("=", "+", "@", "\t") for cell in cells)
    assert any("'=HYPERLINK" in text for text in texts)


def test_messages_are_escaped_too(capsys: pytest.CaptureFixture[str]) -> None:
    print_text(HOSTILE)
    print_notice(HOSTILE)
    captured = capsys.readouterr()
    assert _acting(captured.out + captured.err) == set()
    assert "\\x1b" in captured.out
