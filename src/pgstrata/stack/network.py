"""The network of a cluster's nodes on one machine: a namespace each, and one in which a bridge joins them.

Each namespace is held by a file among the trial's own mounts, so that unmounting and removing it is all there is to
take back: its interfaces, addresses and queues go with it. Nothing is added to the machine's own network, and nothing
leads from one into the other, so that the addresses cannot collide with the machine's.

They are of 198.18.0.0/15, which RFC 2544 sets aside for benchmarks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pgstrata.errors import parser_of
from pgstrata.host.capabilities import Capability, Need, everywhere, kernel_has, program
from pgstrata.host.facts.filesystems import module_available
from pgstrata.host.facts.os_release import Family
from pgstrata.host.protocol import Command, Host, command
from pgstrata.spec.stack import Network, Stack
from pgstrata.stack.looks import FreePath
from pgstrata.stack.step import Attested, PlannedCommand, Step, planned
from pgstrata.stack.undo import RemovePath, Unmount

DRIVER = "driver"
"""The node that pgbench runs on."""
_HUB = "hub"
_BRIDGE = "bridge0"
_INTERFACE = "eth0"
_SUBNET = "198.18.0"
_PREFIX_BITS = 24

BURST_BYTES = 128 * 1024
"""Two of the largest packets that a virtual link hands over at once."""
LONGEST_QUEUE_MS = 100

CLUSTER = "cluster"
NETEM = "net.netem"
PGPOOL = "pgpool"
"""Names of capabilities."""


@dataclass(frozen=True)
class Link:
    """A node on the network of its cluster."""

    node: str
    namespace: str
    """The file that holds its namespace."""
    address: str

    def enter(self, command: Command, *, further: tuple[str, ...] = ()) -> Command:
        """The same command in the node's namespace, and behind what else root does first; root may enter, and becomes
        the command's user there."""
        user = (f"--userspec={command.user}", "--skip-chdir", "/") if command.user else ()
        become = ("chroot", *user) if user else ()
        argv = ("nsenter", f"--net={self.namespace}", *further, *become, *command.argv)
        return Command(argv, command.timeout_s, command.stdin, None, command.env, command.cwd)


@dataclass(frozen=True)
class PlannedNetwork:
    """A planned network: all nodes joined when its steps are done."""

    steps: tuple[Step, ...]
    links: tuple[Link, ...]
    checks: tuple[LinkCheck, ...]

    hub: str
    """The file that holds the namespace of the bridge."""

    def set_link(self, node: str, *, up: bool) -> PlannedCommand:
        """Cuts a node off from the others, or lets it in again."""
        return _in(self.hub, "ip", "link", "set", node, "up" if up else "down")

    def link(self, node: str) -> Link:
        """KeyError where there is no such node."""
        return {link.node: link for link in self.links}[node]


def plan_network(stack: Stack, mount_directory: str) -> PlannedNetwork | None:
    """The network of a cluster; None for a server that is alone."""
    if stack.topology is None:
        return None
    hub = _namespace(mount_directory, _HUB)
    names = (DRIVER, *(node.name for node in stack.nodes))
    links = tuple(
        Link(name, _namespace(mount_directory, name), f"{_SUBNET}.{number + 1}") for number, name in enumerate(names)
    )
    network = stack.topology.network
    join = Step(
        "bridge between the nodes",
        (
            _in(hub, "ip", "link", "add", _BRIDGE, "type", "bridge"),
            _in(hub, "ip", "link", "set", _BRIDGE, "up"),
        ),
    )
    return PlannedNetwork(
        steps=(
            _make(_HUB, hub),
            *(_make(link.node, link.namespace) for link in links),
            join,
            *(_join(link, hub, network) for link in links),
        ),
        links=links,
        checks=tuple(LinkCheck(link, network) for link in links),
        hub=hub,
    )


def _namespace(mount_directory: str, name: str) -> str:
    return f"{mount_directory}/net.{name}"


def _make(name: str, file: str) -> Step:
    return Step(
        f"network namespace {name}",
        (planned("touch", file), planned("unshare", f"--net={file}", "true")),
        undo=(RemovePath(path=file), Unmount(target=file)),
        requires=(FreePath(file, "network namespace"),),
    )


def _join(link: Link, hub: str, network: Network) -> Step:
    """Both ends of a pair, each in its namespace from the beginning; the bridge's end is called after the node."""
    pair = planned(
        "ip", "link", "add", _INTERFACE, ["netns", link.namespace],
        ["type", "veth"], "peer", ["name", link.node], ["netns", hub],
    )  # fmt: skip
    address = f"{link.address}/{_PREFIX_BITS}"
    own = link.namespace
    return Step(
        f"link of {link.node}",
        (
            pair,
            _in(hub, "ip", "link", "set", link.node, "master", _BRIDGE, "up"),
            _in(own, "ip", "link", "set", "lo", "up"),
            _in(own, "ip", "address", "add", address, "dev", _INTERFACE),
            *(_in(own, *words) for words in _plan_queue(network)),
            _in(own, "ip", "link", "set", _INTERFACE, "up"),
        ),
    )


def _plan_queue(network: Network) -> Iterator[tuple[str, ...]]:
    """The queue of a link that is not as fast as the kernel makes it."""
    add = ("tc", "qdisc", "add", "dev", _INTERFACE, "root")
    rate = ("rate", f"{network.bandwidth_mbit:.15g}mbit") if network.bandwidth_mbit is not None else ()
    if needs_netem(network):
        delay = ("delay", f"{network.delay_ms:.15g}ms") if network.delay_ms else ()
        loss = ("loss", f"{100 * network.loss:.6g}%") if network.loss else ()
        yield (*add, "netem", *delay, *loss, *rate)
    elif rate:
        yield (*add, "tbf", *rate, "burst", str(BURST_BYTES), "latency", f"{LONGEST_QUEUE_MS}ms")


def needs_netem(network: Network) -> bool:
    """Whether the kernel must be able to hold packets back or drop them."""
    return bool(network.delay_ms or network.loss)


def _in(namespace: str, *argv: str) -> PlannedCommand:
    return planned("nsenter", f"--net={namespace}", list(argv))


@dataclass(frozen=True)
class LinkCheck:
    """A node has its own address and the loopback's, no other, and its link the queue that was asked for."""

    link: Link
    network: Network

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        def ask(*argv: str) -> str:
            return host.run(command("nsenter", f"--net={self.link.namespace}", list(argv))).stdout

        what = f"network {self.link.node}"
        queue = parse_queue(ask("tc", "-json", "qdisc", "show", "dev", _INTERFACE))
        return (
            Attested(
                f"{what} addresses",
                f"127.0.0.1 {self.link.address}",
                " ".join(parse_addresses(ask("ip", "-json", "-4", "address", "show"))),
            ),
            Attested(f"{what} queue", render_queue(self.network), queue),
        )


def render_queue(network: Network) -> str:
    """How `parse_queue` tells of the queue that was asked for."""
    rate = f" {network.bandwidth_mbit * 125_000:.0f} B/s" if network.bandwidth_mbit is not None else ""
    if needs_netem(network):
        return f"netem {network.delay_ms:g} ms, loss {network.loss:.4g}{rate}"
    return f"tbf{rate}" if rate else "none"


@parser_of("ip -json address")
def parse_addresses(text: str) -> tuple[str, ...]:
    """All addresses of a namespace."""
    return tuple(str(info["local"]) for interface in json.loads(text) for info in interface["addr_info"])


@parser_of("tc -json qdisc")
def parse_queue(text: str) -> str:
    """The root queue of a link in words; `none` where the link does not queue."""
    root = next((queue for queue in json.loads(text) if queue.get("root")), None)
    if root is None or root["kind"] in ("noqueue", "pfifo_fast", "fq_codel"):
        return "none"
    options = root.get("options", {})
    rate = options.get("rate", 0)
    rate_bytes = rate.get("rate", 0) if isinstance(rate, dict) else rate
    told = f" {rate_bytes:.0f} B/s" if rate_bytes else ""
    if root["kind"] == "netem":
        delay_s = options.get("delay", {}).get("delay", 0.0)
        loss = options.get("loss-random", {}).get("loss", 0.0)
        return f"netem {1000 * delay_s:g} ms, loss {loss:.4g}{told}"
    return f"{root['kind']}{told}"


def capabilities_of(stack: Stack) -> tuple[str, ...]:
    """What a host must be able to do for the topology of a stack."""
    if stack.topology is None:
        return ()
    netem = (NETEM,) if needs_netem(stack.topology.network) else ()
    return ("root", CLUSTER, *netem, *((PGPOOL,) if stack.topology.pooler == "pgpool" else ()))


def _kernel_links(symbol: str, *, module: str) -> Need:
    """Something of the kernel's network: built in, which only its symbols show, or a module."""

    def available(host: Host) -> bool:
        known = command("grep", "--quiet", ["--word-regexp", symbol], "/proc/kallsyms")
        return host.run(known, check=False).exit_code == 0 or module_available(host, module)

    return kernel_has(available, module)


_PGPOOL_ELSEWHERE: dict[Family, str] = dict.fromkeys(
    ("fedora", "rhel", "suse", "unknown"), "install Pgpool-II 4.3 or later from the packages of its own project"
)

CAPABILITIES = (
    Capability(
        CLUSTER,
        "run the nodes of a cluster in network namespaces",
        (
            program("ip", everywhere("iproute2")),
            program("tc", everywhere("iproute2")),
            program("nsenter", everywhere("util-linux")),
            program("unshare", everywhere("util-linux")),
            program("chroot", everywhere("coreutils")),
            _kernel_links("veth_xmit", module="veth"),
            _kernel_links("br_dev_xmit", module="bridge"),
            _kernel_links("tbf_enqueue", module="sch_tbf"),
        ),
    ),
    Capability(NETEM, "delay and drop packets between nodes", (_kernel_links("netem_enqueue", module="sch_netem"),)),
    Capability(
        PGPOOL,
        "put Pgpool-II in front of a cluster",
        (replace(program("pgpool", {"debian": ("pgpool2",), "ubuntu": ("pgpool2",)}), advice=_PGPOOL_ELSEWHERE),),
    ),
)
