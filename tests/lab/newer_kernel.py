"""The lab image under the kernel of a later Debian, which has drivers that the image's own lacks: taken from the mirror
that the host's apt reads, and used by the tests that need it alone."""

from __future__ import annotations

import dataclasses
import lzma
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pgstrata.host.protocol import Host
from pgstrata.lab.image import Image, Source, read_sources
from pgstrata.lab.initrd import WANTED_MODULES, Entry, insertion_order, render_initrd, render_seed
from pgstrata.lab.recipe import Recipe

SUITE = "trixie"
KERNEL = "linux-image-cloud-amd64"
WANTED = ("ublk_drv", "loop", "xfs", "btrfs")
"""Modules that the machine is to be able to load."""


def source_of(host: Host) -> Source:
    """The suite on the host's own mirror of Debian."""
    own = [s for s in read_sources(host) if s.suite in {Recipe().release, SUITE} and "main" in s.components]
    assert own, "apt of this host reads Debian from nowhere"
    return dataclasses.replace(own[0], suite=SUITE)


def download(host: Host, folder: Path) -> Path:
    """The package of the kernel, in a folder that apt keeps its lists of that suite in meanwhile."""
    source = source_of(host)
    signed = f"[signed-by={source.signed_by}] " if source.signed_by else ""
    for made in ("lists/partial", "cache/archives/partial"):
        (folder / made).mkdir(parents=True)
    (folder / "sources.list").write_text(f"deb {signed}{source.uri} {source.suite} main\n")
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
    }
    options = [word for name, value in settings.items() for word in ("--option", f"{name}={value}")]

    def run(*argv: str) -> str:
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, (argv, done.stderr)
        return done.stdout

    run("apt-get", *options, "--quiet", "update")
    depends = run("apt-cache", *options, "depends", "--important", KERNEL)
    (package,) = re.findall(r"Depends: (linux-image-\S+)", depends)
    run("apt-get", *options, "--quiet", "download", package)
    (found,) = folder.glob("*.deb")
    run("dpkg-deb", "--extract", str(found), str(folder / "tree"))
    return folder / "tree"


def read_modules(folder: Path) -> Mapping[str, bytes]:
    """The modules below a folder by path, unpacked."""
    paths = sorted(folder.rglob("*.ko*"))
    unpacked = {
        path: lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes() for path in paths
    }
    return {str(path.relative_to(folder)).removesuffix(".xz"): content for path, content in unpacked.items()}


def dependencies(modules: Mapping[str, bytes]) -> dict[str, tuple[str, ...]]:
    """What each module says that it needs, by path; as modules.dep has it."""
    paths = {Path(path).stem.replace("-", "_"): path for path in modules}
    found = {}
    for path, content in modules.items():
        said = re.search(rb"\0depends=([^\0]*)\0", content)
        names = said[1].decode().split(",") if said and said[1] else []
        found[path] = tuple(paths[name.replace("-", "_")] for name in names)
    return found


def with_newer_kernel(host: Host, image: Image, folder: Path) -> Image:
    """The image with that kernel, in a folder that is there already."""
    tree = download(host, folder / "package")
    (kernel,) = (tree / "boot").glob("vmlinuz-*")
    release = kernel.name.removeprefix("vmlinuz-")
    (modules_folder,) = tree.glob(f"usr/lib/modules/{release}")
    modules = read_modules(modules_folder)
    needs = dependencies(modules)
    first = {path.rsplit("/", 1)[-1]: modules[path] for path in insertion_order(needs, WANTED_MODULES)}
    lie = f"usr/lib/modules/{release}"
    loadable = [Entry(f"{lie}/{path}", modules[path]) for path in insertion_order(needs, WANTED)]
    lists = [Entry(f"{lie}/{path.name}", path.read_bytes()) for path in modules_folder.glob("modules.*")]
    newer = folder / "image"
    newer.mkdir()
    (newer / "vmlinuz").symlink_to(kernel)
    (newer / "root.img").symlink_to(image.root)
    busybox = newer / "busybox"
    subprocess.run(["debugfs", "-R", f"dump /usr/bin/busybox {busybox}", image.root], check=True, capture_output=True)
    (newer / "initrd").write_bytes(render_initrd(busybox.read_bytes(), first) + render_seed([*loadable, *lists]))
    return dataclasses.replace(image, directory=str(newer), key=f"{image.key}-{release}", release=release)
