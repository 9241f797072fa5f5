"""A wheel of the checkout in a new environment: with both Rust programs where cargo is, for any platform without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).parent / "strata-disk"
SOURCES = ("src", "crates", ".ci", "pyproject.toml", "README.md", "LICENSE", "hatch_build.py")
PATIENCE_S = 280
STUB_CARGO = """\
#!/bin/sh
case "$1" in
--version) echo "cargo 1.99.0" ;;
build)
    for last; do :; done
    mkdir -p "target/$last/release" && cp {program} {program.parent}/strata-load "target/$last/release" ;;
esac
"""


def checkout(folder: Path) -> Path:
    """A copy without what was built; `.ci` and manifests decide what a wheel is made of."""
    copy = folder / "checkout"
    copy.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("target", "__pycache__", "node_modules"))
        else:
            shutil.copy(source, copy / name)
    return copy


def build(copy: Path, folder: Path, cargo: str) -> Path:
    """The wheel, made without network by the environment's own hatchling; `cargo` is a program's text."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "cargo").write_text(cargo)
    (programs / "cargo").chmod(0o755)
    out = folder / "dist"
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out)],
        cwd=copy,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    (wheel,) = out.glob("*.whl")
    return wheel


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_without_cargo_a_wheel_is_for_any_platform(tmp_path: Path) -> None:
    wheel = build(checkout(tmp_path), tmp_path, "#!/bin/sh\nexit 127\n")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not any("/scripts/" in name for name in names(wheel))
    assert "pgstrata/cli/main.py" in names(wheel)


@pytest.mark.skipif(not PROGRAM.exists(), reason="strata-disk is not built: cargo is missing")
def test_a_wheel_with_the_program_works_in_a_new_environment(tmp_path: Path) -> None:
    """What cargo makes is tested elsewhere: a stand-in hands out the program of this environment."""
    wheel = build(checkout(tmp_path), tmp_path, STUB_CARGO.format(program=PROGRAM))
    assert (
        "-py3-none-manylinux_2_17_" in wheel.name
    )  # the program is static, so no library of the machine is in its tag
    assert not any(name.startswith(("pgstrata_fake", "hatch_build", "crates")) for name in names(wheel))
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    install = ["install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), *install],
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    installed = environment / "bin" / "strata-disk"
    said = subprocess.run([installed, "models"], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert "hdd-7200" in said.stdout
    load = [str(environment / "bin" / "strata-load"), "--version"]
    assert "strata-load" in subprocess.run(load, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
