"""Make what the packages of distributions hold: `python release/stage.py WHEEL FOLDER EPOCH`.

FOLDER gets the tree that is installed (`stage`), the file for nfpm, and the SBOM. The tree has the program with the
locked packages of its core in an environment for the Python that runs this, below /usr/lib/pgstrata; of that minor.
"""

from __future__ import annotations

import compileall
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, distribution, requires
from pathlib import Path
from string import Template
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pgstrata_docs.cli import render_reference

ROOT = Path(__file__).parents[1]
HOME = "/usr/lib/pgstrata"
SUMMARY = "which storage stack PostgreSQL should sit on: build it, measure it, judge it"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
PROGRAMS = ("strata-disk", "strata-load")
COMPLETIONS = {
    "bash": "bash-completion/completions/pgstrata",
    "zsh": "zsh/site-functions/_pgstrata",
    "fish": "fish/vendor_completions.d/pgstrata.fish",
}
START = f"""\
#!{HOME}/bin/python -I
import sys
from pgstrata.cli.main import main
sys.exit(main())
"""
_BLOCK = re.compile(r"^([\w.-]+)==(\S+)(?: ; .*?)? \\\n((?:    --hash=sha256:\w+(?: \\)?\n)+)", re.MULTILINE)


def with_required(name: str, extras: frozenset[str], found: dict[str, Distribution]) -> dict[str, Distribution]:
    """Add an installed distribution and, recursively, those that it needs with these extras."""
    found[canonicalize_name(name)] = distribution(name)
    for needed in map(Requirement, requires(name) or ()):
        wanted = needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in ("", *extras))
        if wanted and (canonicalize_name(needed.name) not in found or needed.extras):
            with_required(needed.name, frozenset(needed.extras), found)
    return found


def locked(names: list[str]) -> dict[str, tuple[str, list[str]]]:
    """Return version and SHA-256 of the files of these packages, as the lock has them for this Python."""
    blocks = _BLOCK.findall((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    known = {(name, version): re.findall(r"sha256:(\w+)", hashes) for name, version, hashes in blocks}
    versions = {name: distribution(name).version for name in names}
    return {name: (version, known[name, version]) for name, version in versions.items()}


def install(wheel: Path, home: Path, names: list[str]) -> None:
    """Install the wheel and the locked packages into an environment that will lie at HOME."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    files, python = home.parent / "locked.txt", home / "bin" / "python"
    lines = [f"{n}=={v} {' '.join(f'--hash=sha256:{h}' for h in hashes)}" for n, (v, hashes) in locked(names).items()]
    files.write_text("\n".join(lines) + "\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", str(python), "install"]
    for what in (["--require-hashes", "--requirement", str(files)], [str(wheel)]):
        subprocess.run([*pip, "--no-deps", "--no-compile", "--only-binary", ":all:", *what], check=True)
    files.unlink()
    for path in [*home.rglob("tests")]:
        shutil.rmtree(path)
    for path in [*(home / "bin").iterdir(), *home.rglob("direct_url.json"), home / "lib64"]:
        if path.name not in PROGRAMS:
            path.unlink()
    python.symlink_to(f"/usr/bin/{PYTHON}")
    (home / "bin" / "pgstrata").write_text(START)
    (home / "bin" / "pgstrata").chmod(0o755)
    (home / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(home, quiet=1, stripdir=str(home), prependdir=HOME, invalidation_mode=mode)


def completion(shell: str) -> str:
    """Return the script that the program prints for a shell."""
    asked = {**os.environ, "_PGSTRATA_COMPLETE": f"source_{shell}"}
    program = Path(sys.executable).with_name("pgstrata")
    said = subprocess.run([program], env=asked, capture_output=True, text=True, check=True, timeout=60).stdout
    return f"{said.strip()}\n"  # the first line is for zsh


def render_man(version: str, day: str) -> str:
    """Return the page of section 1: the reference of the command line, with the help of each verb as it is printed."""
    lines, shown = [f'.TH PGSTRATA 1 {day} "pgstrata {version}"', ".SH NAME", f"pgstrata \\- {SUMMARY}"], False
    for line in render_reference().splitlines():
        text = line.replace("\\", "\\e").replace("-", "\\-")
        text = f"\\&{text}" if text.startswith((".", "'")) else text
        if line == "```":
            shown = not shown
            lines.append(".nf" if shown else ".fi")
        elif line.startswith("#") and not shown:
            lines.append(f".SH {text.lstrip('# ').upper()}")
        elif line.startswith("|") and not shown:
            cells = [cell.strip().replace("`", "") for cell in text.strip("|").split("|")]
            lines += [] if set(line) <= set("| -") else [".TP", cells[0], *cells[1:]]
        else:
            lines.append(text if shown else text.replace("`", "") or ".PP")
    return "\n".join(lines) + "\n"


def components(names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the packages of Python and their crates, as CycloneDX names them."""
    crates = tomllib.loads((ROOT / "crates" / "Cargo.lock").read_text(encoding="utf-8"))
    found = [("pypi", name, version, digests) for name, (version, digests) in locked(names).items()]
    found += [("cargo", c["name"], c["version"], [c["checksum"]]) for c in crates["package"] if "checksum" in c]
    for kind, name, version, digests in found:
        hashes = [{"alg": "SHA-256", "content": digest} for digest in digests]
        purl = f"pkg:{kind}/{name}@{version}"
        yield {"type": "library", "name": name, "version": version, "purl": purl, "hashes": hashes}


def main(wheel: Path, folder: Path, epoch: int) -> None:
    """Write tree, nfpm.yaml and SBOM."""
    stage, version, day = folder / "stage", distribution("pgstrata").version, datetime.fromtimestamp(epoch, UTC)
    home, share = stage / HOME.removeprefix("/"), stage / "usr" / "share"
    home.mkdir(parents=True)
    names = sorted(set(with_required("pgstrata", frozenset(), {})) - {"pgstrata"})
    install(wheel, home, names)
    (stage / "usr" / "bin").mkdir()
    (stage / "usr" / "bin" / "pgstrata").symlink_to("../lib/pgstrata/bin/pgstrata")
    texts = {place: completion(shell) for shell, place in COMPLETIONS.items()}
    for place, text in {**texts, "man/man1/pgstrata.1": render_man(version, f"{day:%Y-%m-%d}")}.items():
        (share / place).parent.mkdir(parents=True)
        (share / place).write_text(text, encoding="utf-8")
    values = {"version": version, "mtime": f"{day:%Y-%m-%dT%H:%M:%SZ}", "python": PYTHON, "stage": str(stage)}
    (folder / "nfpm.yaml").write_text(Template((ROOT / "release" / "nfpm.yaml").read_text()).substitute(values))
    itself = {"type": "application", "name": "pgstrata", "version": version}
    head = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1}
    bom = {**head, "metadata": {"timestamp": values["mtime"], "component": itself}, "components": [*components(names)]}
    (folder / "sbom.json").write_text(json.dumps(bom, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), int(sys.argv[3]))
