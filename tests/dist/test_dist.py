"""What `make dist` leaves, made twice from clones in different folders."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import pgstrata

ROOT = Path(__file__).parents[2]
PATIENCE_S = 1500

pytestmark = [
    pytest.mark.timeout(2 * PATIENCE_S),
    pytest.mark.skipif(shutil.which("cargo") is None, reason="strata-disk is not built: cargo is missing"),
]


def made(folder: Path) -> Path:
    """Return what a clone of this commit leaves; the environment is that of the tests."""
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True, timeout=60)
    (folder / ".venv").symlink_to(Path(sys.prefix))
    subprocess.run(["bash", ".ci/dist"], cwd=folder, check=True, capture_output=True, timeout=PATIENCE_S)
    return folder / "dist"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("one") / "clone")


def one(dist: Path, pattern: str) -> Path:
    (path,) = dist.glob(pattern)
    return path


def test_two_builds_are_equal(dist: Path, tmp_path: Path) -> None:
    sums = (dist / "SHA256SUMS").read_text()
    assert (made(tmp_path / "in another and longer folder" / "clone") / "SHA256SUMS").read_text() == sums
    told = {name: digest for digest, name in (line.split(maxsplit=1) for line in sums.splitlines())}
    assert set(told) == {path.name for path in dist.iterdir()} - {"SHA256SUMS"}
    assert all(hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest for name, digest in told.items())


def test_wheels_with_and_without_the_program(dist: Path) -> None:
    """auditwheel has passed the first, or `.ci/dist` had failed."""
    with_program, pure = one(dist, "*-py3-none-manylinux_2_17_*.musllinux_1_1_*.whl"), one(dist, "*-py3-none-any.whl")
    names = {path: zipfile.ZipFile(path).namelist() for path in (with_program, pure)}
    assert [any(n.endswith("/scripts/strata-disk") for n in names[p]) for p in (with_program, pure)] == [True, False]
    with tarfile.open(one(dist, "*.tar.gz")) as source:
        members = set(source.getnames())
    assert {f"pgstrata-{pgstrata.__version__}/{name}" for name in ("Makefile", "src/pgstrata/__init__.py")} <= members


def test_a_deb_holds_a_program_that_runs(dist: Path, tmp_path: Path) -> None:
    deb = one(dist, "*.deb")
    subprocess.run(["dpkg-deb", "--extract", deb, tmp_path], check=True, timeout=300)
    usr = tmp_path / "usr"
    found = {path.relative_to(usr).as_posix() for path in usr.rglob("*")}
    assert found >= {
        "bin/pgstrata", "lib/pgstrata/bin/strata-disk", "lib/sysusers.d/pgstrata.conf", "lib/tmpfiles.d/pgstrata.conf",
        "share/man/man1/pgstrata.1", "share/bash-completion/completions/pgstrata",
        "share/zsh/site-functions/_pgstrata", "share/fish/vendor_completions.d/pgstrata.fish",
    }  # fmt: skip
    minor = f"python3.{sys.version_info.minor}"
    assert (usr / "lib/pgstrata/bin/python").readlink() == Path("/usr/bin", minor)
    field = ["dpkg-deb", "--field", str(deb), "Depends"]
    assert minor in subprocess.run(field, capture_output=True, text=True, check=True, timeout=60).stdout
    run = "import sys; sys.path.insert(0, sys.argv.pop(1)); from pgstrata.cli.main import main; main()"
    packages = usr / "lib" / "pgstrata" / "lib" / minor / "site-packages"
    call = [sys.executable, "-S", "-I", "-c", run, str(packages), "--version"]
    said = subprocess.run(call, capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout == f"pgstrata {pgstrata.__version__}\n"


def test_an_rpm_names_what_it_needs(dist: Path) -> None:
    if shutil.which("rpm") is None:
        pytest.skip("rpm is missing: apt-get install rpm")
    rpm = ["rpm", "--query", "--package", str(one(dist, "*.rpm")), "--requires", "--list"]
    told = subprocess.run(rpm, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert {f"python3.{sys.version_info.minor}", "xfsprogs", "/usr/bin/pgstrata"} <= {*told}


def test_the_sbom_names_packages_and_crates(dist: Path) -> None:
    bom = json.loads((dist / "sbom.json").read_text())
    names = {(c["purl"].split("/")[0], c["name"]) for c in bom["components"]}
    assert {("pkg:pypi", "numpy"), ("pkg:pypi", "pydantic-core"), ("pkg:cargo", "nix")} <= names
    assert ("pkg:pypi", "altair") not in names  # of an extra
    assert all(c["hashes"] and len(c["hashes"][0]["content"]) == 64 for c in bom["components"])
