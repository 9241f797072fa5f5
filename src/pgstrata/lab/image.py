"""The lab image: a Debian tree with every storage tool, the zfs module built for its kernel, PostgreSQL.

Built once, kept in the user's cache below the key of its recipe. Two trees are made with mmdebstrap: one becomes the
image, the other holds compiler and headers and gives only the zfs modules, so that the image stays small. Packages come
from the source that the host's own apt is set to, never from an address of ours.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.host.protocol import Command, CommandFailed, Host, command, marked
from pgstrata.lab.initrd import insertion_order, parse_modules_dep, render_initrd
from pgstrata.lab.recipe import GOLDEN, POSTGRES, SERVER_USER, Recipe

COMPONENTS = ("main", "contrib")
"""zfs is in contrib: its licence does not go together with the kernel's, so it comes as source alone."""

_ONE_LINE = re.compile(r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)$")
_PASSED_ON = re.compile(r"^Acquire::(?:https?|ftp)(?:::|\s)|^Acquire::Check-(?:Valid-Until|Date)\s")


@dataclass(frozen=True)
class Source:
    """One archive that apt reads packages from."""

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str | None = None


def parse_one_line_sources(text: str) -> tuple[Source, ...]:
    """The `deb` lines of a sources.list (sources.list(5)); other lines are comments or sources of source code."""
    found = []
    for line in text.splitlines():
        match = _ONE_LINE.match(line.partition("#")[0].strip())
        if match:
            signed = re.search(r"signed-by=(\S+)", match["options"] or "")
            components = tuple(match["components"].split())
            found.append(Source(match["uri"], match["suite"], components, signed[1] if signed else None))
    return tuple(found)


def parse_deb822_sources(text: str) -> tuple[Source, ...]:
    """The enabled stanzas of a `.sources` file that give binary packages, one source for each URI and suite."""
    found: list[Source] = []
    for stanza in re.split(r"\n\s*\n", text):
        fields = _fields(stanza)
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        key = fields.get("signed-by", "").strip()
        found += [
            Source(uri, suite, tuple(fields.get("components", "").split()), key if key.startswith("/") else None)
            for uri in fields.get("uris", "").split()
            for suite in fields.get("suites", "").split()
        ]
    return tuple(found)


def _fields(stanza: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1].isspace():
            fields[name] = f"{fields.get(name, '')} {line.strip()}"
        else:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields


def choose_sources(sources: Iterable[Source], release: str) -> tuple[str, ...]:
    """Lines for a sources.list of `release` from those archives of the host that carry it.

    PreflightError where the host reads that release from nowhere.
    """
    wanted = (release, f"{release}-updates", f"{release}-security")
    chosen = [s for s in sources if s.suite in wanted and "main" in s.components]
    if not any(s.suite == release for s in chosen):
        raise PreflightError(
            f"cannot build the lab image: apt of this host has no mirror of Debian {release}",
            hint=f"pgstrata lab build --mirror URL, the address of a mirror of Debian with {release}",
        )
    return tuple(dict.fromkeys(_render(s) for s in chosen))


def _render(source: Source) -> str:
    option = f"[signed-by={source.signed_by}] " if source.signed_by else ""
    return f"deb {option}{source.uri} {source.suite} {' '.join(COMPONENTS)}"


def parse_apt_config(text: str) -> tuple[str, ...]:
    """Lines of `apt-config dump` that say how to reach a mirror: proxies, time limits, checks of dates."""
    return tuple(line for line in text.splitlines() if _PASSED_ON.match(line))


def read_sources(host: Host) -> tuple[Source, ...]:
    """Every source that apt of the host is set to."""
    found: list[Source] = []
    if host.status("/etc/apt/sources.list") is not None:
        found += parse_one_line_sources(host.read_text("/etc/apt/sources.list"))
    directory = "/etc/apt/sources.list.d"
    for name in host.list_directory(directory) if host.status(directory) is not None else ():
        if name.endswith(".list"):
            found += parse_one_line_sources(host.read_text(f"{directory}/{name}"))
        elif name.endswith(".sources"):
            found += parse_deb822_sources(host.read_text(f"{directory}/{name}"))
    return tuple(found)


def read_apt_config(host: Host) -> tuple[str, ...]:
    """The host's own settings for reaching mirrors; none where it has no apt."""
    printed = host.run(command("apt-config", "dump", "Acquire"), check=False)
    return parse_apt_config(printed.stdout)


MANIFEST = "image.json"
SPACE_WANTED_BYTES = 8 << 30
"""Two trees (0.7 and 1.2 GB), packages on the way in, and the image with room to grow."""
TREE_TIMEOUT_S = 3600.0
"""Downloading and, in the second tree, compiling zfs: 8 minutes on two busy cores."""
TOOLS = {"mmdebstrap": "mmdebstrap", "mkfs.ext4": "e2fsprogs", "unshare": "util-linux", "chroot": "coreutils"}

Say = Callable[[str], None]
"""Tells the user what is being done."""


def image_directory() -> str:
    """Built images, one folder each, in the user's cache: losing them costs a new build."""
    return str(platformdirs.user_cache_path("pgstrata") / "lab")


@dataclass(frozen=True)
class Image:
    """A finished image in its folder."""

    directory: str
    key: str
    release: str
    """The kernel's release, as uname prints it."""
    packages: tuple[tuple[str, str], ...]
    """Names and versions of what is installed in it."""

    @property
    def kernel(self) -> str:
        return f"{self.directory}/vmlinuz"

    @property
    def initrd(self) -> str:
        return f"{self.directory}/initrd"

    @property
    def root(self) -> str:
        return f"{self.directory}/root.img"


def find_image(recipe: Recipe, directory: str | None = None) -> Image | None:
    """The image of a recipe where it was built already."""
    folder = Path(directory or image_directory()) / recipe.key
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return None
    said = json.loads(manifest.read_text())
    return Image(str(folder), recipe.key, said["release"], tuple((n, v) for n, v in said["packages"]))


def build_image(
    host: Host, recipe: Recipe, *, say: Say, directory: str | None = None, mirror_url: str | None = None
) -> Image:
    """The image of a recipe, built unless the cache has it; `mirror_url` stands in for the mirrors of the host's apt.

    PreflightError where a tool, space, a mirror or the rights are missing; PgstrataError when a step fails.
    """
    cache = Path(directory or image_directory())
    found = find_image(recipe, str(cache))
    if found is not None:
        return found
    sources = _sources(host, recipe, mirror_url)
    _require_tools(host)
    cache.mkdir(parents=True, exist_ok=True)
    require_space(cache, SPACE_WANTED_BYTES)
    lock = f"lab-image-{recipe.key}"
    holder = host.try_lock(lock, "pgstrata lab build")
    if holder is not None:
        raise PreflightError("the lab image is being built by another process", hint=f"wait for {holder}")
    try:
        return _Build(host, recipe, cache, sources, say).run()
    finally:
        host.unlock(lock)


def _sources(host: Host, recipe: Recipe, mirror_url: str | None) -> tuple[str, ...]:
    if mirror_url is not None:
        return (f"deb {mirror_url} {recipe.release} {' '.join(COMPONENTS)}",)
    return choose_sources(read_sources(host), recipe.release)


def _require_tools(host: Host) -> None:
    if host.run(command("id", "--user")).stdout.strip() != "0":
        raise PreflightError(
            "building the lab image needs root (it runs Debian's own scripts in a chroot)",
            hint="sudo pgstrata lab build",
        )
    missing = sorted(
        package for tool, package in TOOLS.items() if host.run(command("which", tool), check=False).exit_code != 0
    )
    if missing:
        raise PreflightError(
            f"building the lab image needs {', '.join(missing)}", hint=f"apt-get install {' '.join(missing)}"
        )


def require_space(cache: Path, wanted_bytes: int) -> None:
    """PreflightError when the cache's filesystem has less free than that."""
    free_bytes = shutil.disk_usage(cache).free
    if free_bytes < wanted_bytes:
        raise PreflightError(
            f"no space for the lab image: {cache} has {free_bytes / 2**30:.1f} GiB free, "
            f"{wanted_bytes / 2**30:.0f} GiB are needed",
            hint="free some, or set XDG_CACHE_HOME to a folder with more",
        )


class _Build:
    """One build, in a folder that is removed when it fails and renamed when it is done."""

    def __init__(self, host: Host, recipe: Recipe, cache: Path, sources: tuple[str, ...], say: Say) -> None:
        self.host = host
        self.recipe = recipe
        self.cache = cache
        self.sources = sources
        self.say = say
        self.work = cache / f"build-{recipe.key}"
        self.tree = self.work / "tree"
        self.module_tree = self.work / "modules"
        self.marker = f"lab-image-{recipe.key}"

    def run(self) -> Image:
        self._remove_work()
        self.work.mkdir()
        try:
            self._make_root_tree()
            release = self._release(self.tree)
            self._add_modules(release)
            self._add_files()
            self._add_golden()
            self._write_image(release)
            self.host.remove(str(self.tree))
            self.work.rename(self.cache / self.recipe.key)
        except BaseException:
            self._remove_work()
            raise
        image = find_image(self.recipe, str(self.cache))
        assert image is not None
        return image

    def _remove_work(self) -> None:
        """Also what a build that was killed left: its programs first, which would go on writing."""
        self.host.stop_marked(self.marker)
        self.host.remove(str(self.work))

    def _make_root_tree(self) -> None:
        self.say(f"installing Debian {self.recipe.release} with {len(self.recipe.packages)} packages")
        # a cluster that the package makes would be started and would take the port
        no_cluster = 'mkdir -p "$1/etc/postgresql-common" && echo "create_main_cluster = false" '
        hook = no_cluster + '> "$1/etc/postgresql-common/createcluster.conf"'
        self._debootstrap(self.tree, self.recipe.packages, ["--essential-hook", hook])

    def _add_modules(self, release: str) -> None:
        self.say("building the zfs modules (about 5 to 10 minutes)")
        self._debootstrap(self.module_tree, self.recipe.module_packages, [])
        found = sorted(self.module_tree.glob(f"lib/modules/{release}/updates/dkms/*.ko*"))
        if not any(path.name.startswith("zfs.ko") for path in found):
            logs = list(self.module_tree.glob("var/lib/dkms/zfs/*/build/make.log"))
            tail = " ".join(logs[0].read_text(errors="replace").splitlines()[-5:]) if logs else "no log was written"
            raise PgstrataError(f"the zfs modules were not built for kernel {release}: {tail}")
        target = self.tree / "lib/modules" / release / "updates/dkms"
        target.mkdir(parents=True)
        for path in found:
            shutil.copyfile(path, target / path.name)
        self.host.remove(str(self.module_tree))
        self._chroot("depmod", release)

    def _add_files(self) -> None:
        for name, text in self.recipe.files:
            path = self.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for path in self.tree.glob("etc/ssh/ssh_host_*"):
            path.unlink()  # every machine gets a key of its own
        self._chroot("systemctl", "mask", *self.recipe.masked_units)

    def _add_golden(self) -> None:
        """Makes and loads a cluster natively: in emulation that takes a minute each time."""
        self.say("loading the cluster that is kept in the image")
        files = f"{GOLDEN}/files"
        data = f"{files}/data"
        self._chroot("useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SERVER_USER)
        owner = [f"--owner={SERVER_USER}", f"--group={SERVER_USER}"]
        self._chroot("install", "--directory", owner, "--mode=0700", files)
        options = ["--encoding=UTF8", "--locale=C", "--auth=trust", "--username=postgres", "--no-sync"]
        self._as_server_user("initdb", ["-D", data], options)
        # a chroot has no /dev/shm
        settings = (
            "-c fsync=off -c dynamic_shared_memory_type=mmap -c listen_addresses= -c unix_socket_directories=/tmp"
        )
        self._as_server_user("pg_ctl", ["-D", data], ["-o", settings], ["-l", f"{files}/log"], "--wait", "start")
        try:
            connection = ["--host=/tmp", "--username=postgres"]
            self._as_server_user(
                "pgbench", connection, "--initialize", f"--scale={self.recipe.golden_scale}", "postgres"
            )
        finally:
            self._as_server_user("pg_ctl", ["-D", data], ["--mode", "fast"], "--wait", "stop")
        golden = self.tree / GOLDEN.lstrip("/")
        (golden / "files/log").unlink()
        (golden / "files/data/pg_wal").rename(golden / "files/wal")
        (golden / "files/tablespaces").mkdir()
        (golden / "golden.json").write_text(json.dumps({"tablespaces": {}, "digest": ""}))

    def _as_server_user(self, program: str, *words: str | list[str]) -> None:
        argv = [f"--userspec={SERVER_USER}:{SERVER_USER}", str(self.tree), f"{POSTGRES}/{program}"]
        self._run(command("chroot", argv, *words, timeout_s=300))

    def _write_image(self, release: str) -> None:
        self.say("writing the root filesystem")
        boot = self.tree / "boot"
        shutil.copyfile(boot / f"vmlinuz-{release}", self.work / "vmlinuz")
        (self.work / "initrd").write_bytes(self._initrd(release))
        packages = self._packages()
        shutil.rmtree(boot)
        boot.mkdir()
        size = f"{self.recipe.size_bytes // 2**20}M"
        # few inodes, all initialised now: a kernel that zeroes the rest later would be measured
        options = ["-q", "-F", "-L", "pgstrata-root", "-N", "500000", "-E", "lazy_itable_init=0"]
        target = [str(self.work / "root.img"), size]
        self._run(command("mkfs.ext4", options, ["-d", str(self.tree)], target, timeout_s=600))
        said = {"release": release, "packages": packages, "recipe": asdict(self.recipe)}
        (self.work / MANIFEST).write_text(json.dumps(said, indent=1))

    def _initrd(self, release: str) -> bytes:
        modules = self.tree / "lib/modules" / release
        order = insertion_order(parse_modules_dep((modules / "modules.dep").read_text()), self.recipe.modules)
        contents = {path.rsplit("/", 1)[-1]: (modules / path).read_bytes() for path in order}
        return render_initrd((self.tree / "bin/busybox").read_bytes(), contents)

    def _packages(self) -> list[tuple[str, str]]:
        printed = self._chroot("dpkg-query", "--show", ["--showformat", "${Package} ${Version}\\n"])
        return [(name, version) for name, version in (line.split(" ") for line in printed.splitlines())]

    def _release(self, tree: Path) -> str:
        found = sorted(path.name for path in (tree / "lib/modules").iterdir())
        if len(found) != 1:
            raise PgstrataError(f"the lab's tree should have one kernel, it has {len(found)}: {' '.join(found)}")
        return found[0]

    def _debootstrap(self, tree: Path, packages: tuple[str, ...], more: list[str]) -> None:
        """In namespaces of its own, so that its mounts and processes go when it is killed; what others unmount
        meanwhile is not kept in use by them."""
        apart = ["unshare", "--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child", "--mount-proc"]
        options = ["--mode=root", "--format=directory", "--variant=apt", "--components", " ".join(COMPONENTS)]
        aptopts = ['APT::Install-Recommends "false"', *read_apt_config(self.host)]
        for option in aptopts:
            options += ["--aptopt", option]
        for left_out in ("man", "doc", "locale", "info"):
            options += ["--dpkgopt", f"path-exclude=/usr/share/{left_out}/*"]
        options += ["--include", ",".join(packages), *more]
        argv = (*apart, "mmdebstrap", *options, self.recipe.release, str(tree), *self.sources)
        # INITRD=No: the lab has an initrd of its own (see initramfs-tools' hook in /etc/kernel/postinst.d)
        env = (("INITRD", "No"), *marked(self.marker))
        self._run(Command(argv, timeout_s=TREE_TIMEOUT_S, env=env))

    def _chroot(self, *argv: str | list[str]) -> str:
        return self._run(command("chroot", str(self.tree), *argv, timeout_s=300))

    def _run(self, step: Command) -> str:
        try:
            return self.host.run(step).stdout
        except CommandFailed as error:
            if "Temporary failure resolving" in error.message or "Unable to fetch" in error.message:
                raise PreflightError(
                    f"cannot build the lab image: no package mirror answers: {error.message}",
                    hint="pgstrata lab build --mirror URL",
                ) from error
            raise
