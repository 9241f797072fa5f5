"""`pgstrata bundle` and `pgstrata export`: a campaign in files for others."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgstrata.cli.output import CampaignPath, JsonFlag, end, end_of_reading, option, print_result, tell_unreadable

if TYPE_CHECKING:
    from pgstrata.record.reader import CampaignData
    from pgstrata.record.redact import Redaction

ENDING = ".pgstrata.zip"


def bundle(
    directory: CampaignPath,
    out: Annotated[Path | None, option("--out", f"File to write; default NAME{ENDING}.", metavar="FILE")] = None,
    redact: Annotated[
        bool, option("--redact", "Omit host names, paths, serial numbers, machine ids and raw output.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Write a campaign to one file: page, JSON and record. `report` and `compare` open it as they open a directory."""
    from pgstrata.errors import UsageError, writing
    from pgstrata.record.reader import read
    from pgstrata.record.redact import own_names, redaction_of
    from pgstrata.spec.expand import slug

    data = read(directory)
    redaction = redaction_of(data, own_names()) if redact else None
    name = data.campaign.name if redaction is None else redaction.text(data.campaign.name)
    path = out or Path(f"{slug(name)}{ENDING}")
    if path.exists():
        raise UsageError(f"{path} is there already", hint="remove it, or name another file with --out FILE")
    with writing(path), tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / "bundle"
        files = _write(data, made, redaction)
        made.replace(path)
    value = _describe(path, files, len(data.trials), redaction)
    print_result(value, lambda: _render(value), json=json)
    tell_unreadable(data.unreadable)
    end(end_of_reading(data))


def _write(data: CampaignData, path: Path, redaction: Redaction | None) -> int:
    """Record, page and JSON; the two are made of the record as it is in the bundle."""
    from pgstrata.analyze.campaign.judge import judge
    from pgstrata.cli.campaign_run import with_published
    from pgstrata.errors import UsageError
    from pgstrata.record.reader import read
    from pgstrata.record.redact import add_members, write_record
    from pgstrata.report.html import write_html
    from pgstrata.report.render import render_json

    files = write_record(path, data, redaction)
    bundled = read(path)
    if len(bundled.trials) != len(data.trials):
        reason = bundled.unreadable[0].reason if bundled.unreadable else "a trial is missing"
        raise UsageError(
            f"the names of this machine cannot be told from words of the record: {reason}",
            hint="bundle it without --redact, on a machine of another name",
        )
    findings = with_published(judge(bundled), bundled)
    page = write_html(bundled, findings, path.with_name("report.html"))
    add_members(path, [("report.html", page.read_bytes()), ("report.json", render_json(findings).encode())])
    return files + 2


def _describe(path: Path, files: int, trials: int, redaction: Redaction | None) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = path.stat().st_size
    value = {"file": str(path), "bytes": size, "sha256": digest, "files": files, "trials": trials}
    return value | {"redacted": None if redaction is None else redaction.counts}


def _render(value: dict[str, Any]) -> str:
    from pgstrata.report.sentences.figures import render_count
    from pgstrata.spec.units import render_size

    parts = (render_count(value["trials"], "trial"), render_count(value["files"], "file"), render_size(value["bytes"]))
    lines = [f"{value['file']}: {', '.join(parts)}", f"SHA-256 {value['sha256']}"]
    if value["redacted"] is not None:
        counts = ", ".join(render_count(n, kind) for kind, n in sorted(value["redacted"].items())) or "nothing"
        lines.append(f"taken out: {counts}, and all raw output; look at it before you give it away")
    return "\n".join(lines)


def export(
    directory: CampaignPath,
    out: Annotated[Path | None, option("--out", "Where to write; default DIR/export.", metavar="FOLDER")] = None,
    json: JsonFlag = False,
) -> None:
    """Write the tidy tables: runs and trials (CSV and Parquet) and every per-second series (Parquet)."""
    from pgstrata.record.frames import load_frames

    frames = load_frames(directory)
    folder = out or (directory if directory.is_dir() else directory.with_suffix("")) / "export"
    written = frames.export(folder)
    print_result(
        {"files": [str(path) for path in written]}, lambda: "\n".join(str(path) for path in written), json=json
    )
    tell_unreadable(frames.data.unreadable)
    end(end_of_reading(frames.data))


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata bundle out/demo --redact --out demo.zip")(bundle)
    app.command(epilog="Example: pgstrata export out/demo --out tables")(export)
