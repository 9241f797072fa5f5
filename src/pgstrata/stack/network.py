"""The network of a cluster's nodes: one namespace per node on each machine, and one with the bridge that joins them.

Each namespace is held by a file among the trial's own mounts. Unmounting and removing that file undoes everything,
because interfaces, addresses and queues go with the namespace. Nothing is added to the machine's own network, and
nothing leads from one into the other, so the addresses cannot collide with the machine's.

netem delays and drops packets. If the kernel has no netem, pgstrata's own program (`relay`) does, which then is the
bridge as well.

VXLAN joins the bridges of several machines: the tunnel's device is in the bridge's namespace, and its packets use the
machine's own network. The tunnel's table lists the nodes behind each machine, so no arriving packet changes it.

Addresses are from 198.18.0.0/15, which RFC 2544 sets aside for benchmarks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pgstrata.errors import parser_of
from pgstrata.host.capabilities import Capability, Need, always, everywhere, kernel_has, program
from pgstrata.host.facts.system import Family
from pgstrata.host.facts.tools import module_available
from pgstrata.host.protocol import Command, Host, command
from pgstrata.spec.stack import Network, Stack
from pgstrata.stack import round_trip
from pgstrata.stack.kind import Check
from pgstrata.stack.step import Attested, FreePath, PlannedCommand, Step, planned, told
from pgstrata.stack.undo import RemovePath, Unmount

DRIVER = "driver"
"""The node that pgbench runs on."""
_HUB = "hub"
_BRIDGE = "bridge0"
INTERFACE = "eth0"
"""Name of a node's interface, in its namespace."""
_SUBNET = "198.18.0"
_PREFIX_BITS = 24

_TUNNEL = "pgstrata-vxlan"
VXLAN_PORT = 4789
"""UDP (RFC 7348)."""
TUNNEL_MTU = 1430
"""Remainder of 1500 bytes after the headers of VXLAN, UDP and IPv6."""
_EVERYBODY = "00:00:00:00:00:00"
"""Tunnel table entry for packets without a particular recipient, such as those of ARP."""

BURST_BYTES = 128 * 1024
"""Two of the largest packets that a virtual link passes at once."""
LONGEST_QUEUE_MS = 100
SLOW_RATE = "1mbit"
"""An eighth of the write rate of the crash trials' ledger."""
SLOW_BURST_BYTES = 4096
"""Assumes packets of 1500 bytes."""
RELAY_MTU = 65_000
"""Few large packets instead of many small ones, as the kernel passes them within a machine."""
RETRANSMITTED_S = 4.0
"""A lost packet is sent again after one second, and after three."""
CLOCKS_AGREE = 0.99

_RELAY = Path(__file__).with_name("relay.py")

CLUSTER = "cluster"
DELAY = "net.delay"
TUNNEL = "net.vxlan"
PGPOOL, PGBOUNCER = "pgpool", "pgbouncer"
"""Names of capabilities."""


@dataclass(frozen=True)
class Link:
    """A node on the network of its cluster."""

    node: str
    namespace: str
    """The file that holds its namespace."""
    address: str
    host: str = ""
    """Set if it differs from the primary's host."""

    @property
    def hardware_address(self) -> str:
        """Address for nodes on several hosts: known beforehand, locally administered."""
        return "02:00:" + ":".join(f"{int(byte):02x}" for byte in self.address.split("."))

    def enter(self, command: Command, *, further: tuple[str, ...] = ()) -> Command:
        """Return the same command in the node's namespace, after `further`, which root runs first. Root may enter, and
        becomes the command's user there."""
        user = (f"--userspec={command.user}", "--skip-chdir", "/") if command.user else ()
        become = ("chroot", *user) if user else ()
        argv = ("nsenter", f"--net={self.namespace}", *further, *become, *command.argv)
        return Command(argv, command.timeout_s, command.stdin, None, command.env, command.cwd)


@dataclass(frozen=True)
class Attachment:
    """A host of a cluster's nodes: the folder of its namespaces, and its address for other hosts."""

    mount_directory: str
    address: str = ""


@dataclass(frozen=True)
class PlannedNetwork:
    """A planned network: all nodes joined when its steps are done."""

    steps: tuple[Step, ...]
    links: tuple[Link, ...]
    checks: tuple[Check, ...]

    hub: str | None
    """The file that holds the namespace of the primary's bridge; None if a relay joins the nodes."""
    far_checks: Mapping[str, tuple[Check, ...]] = field(default_factory=dict)
    """Checks of nodes on other hosts, by host name."""

    def set_link(self, node: str, *, up: bool) -> PlannedCommand:
        """Disconnect a node from the others, or reconnect it."""
        namespace, interface = (self.link(node).namespace, INTERFACE) if self.hub is None else (self.hub, node)
        return _in(namespace, "ip", "link", "set", interface, "up" if up else "down")

    def set_slow(self, node: str, *, slow: bool) -> PlannedCommand | None:
        """Limit the rate to a node, or lift the limit; None if a relay joins the nodes, which has no such queue."""
        if self.hub is None:
            return None
        queue = ("root", "tbf", "rate", SLOW_RATE, "burst", str(SLOW_BURST_BYTES), "latency", f"{LONGEST_QUEUE_MS}ms")
        words = ("add", "dev", node, *queue) if slow else ("del", "dev", node, "root")
        return _in(self.hub, "tc", "qdisc", *words)

    def link(self, node: str) -> Link:
        """Return a node's link; KeyError for an unknown node."""
        return {link.node: link for link in self.links}[node]


def plan_network(
    stack: Stack,
    mount_directory: str,
    *,
    relayed: bool = False,
    tunnels: Mapping[str, Attachment] | None = None,
    tunnel_id: int = 0,
) -> PlannedNetwork | None:
    """Plan the network of a cluster; None for a single server. `relayed`: the host has no netem. If nodes are on
    several hosts, `tunnels` contains all hosts by name, the primary's by an empty one."""
    if stack.topology is None:
        return None
    names = {DRIVER: "", **{node.name: node.host for node in stack.nodes}}
    attached = tunnels or {"": Attachment(mount_directory)}
    links = tuple(
        Link(name, _namespace(attached[host].mount_directory, name), f"{_SUBNET}.{number + 1}", host)
        for number, (name, host) in enumerate(names.items())
    )
    network = stack.topology.network
    if stack.far_hosts:
        return _plan_tunnelled(links, network, attached, tunnel_id)
    if relayed and holds_packets(network):
        return _plan_relayed(links, network, mount_directory)
    return _plan_bridged(links, network, _namespace(mount_directory, _HUB))


def _plan_bridged(links: tuple[Link, ...], network: Network, hub: str) -> PlannedNetwork:
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
        checks=(*(LinkCheck(link, render_queue(network)) for link in links), *_round_trips(links, network)),
        hub=hub,
    )


def _plan_tunnelled(
    links: tuple[Link, ...], network: Network, attached: Mapping[str, Attachment], tunnel_id: int
) -> PlannedNetwork:
    """Plan a bridge on each host for its own nodes, and a tunnel from each host to all others."""
    steps: list[Step] = []
    checks: dict[str, tuple[Check, ...]] = {}
    for host, here in attached.items():
        hub, own = _namespace(here.mount_directory, _HUB), _behind(links, host)
        bridged = _plan_bridged(own, network, hub)
        others = {there.address: _behind(links, name) for name, there in attached.items() if name != host}
        tunnel = _tunnel(hub, here, others, tunnel_id)
        steps += [step.on(host) for step in (*bridged.steps, *map(_fit, own), tunnel)]
        checks[host] = tuple(LinkCheck(link, render_queue(network)) for link in own)
    first = checks.pop("")
    return PlannedNetwork(
        steps=tuple(steps),
        links=links,
        checks=(*first, RoundTripCheck(links, network.delay_ms)),
        hub=_namespace(attached[""].mount_directory, _HUB),
        far_checks=checks,
    )


def _behind(links: tuple[Link, ...], host: str) -> tuple[Link, ...]:
    return tuple(link for link in links if link.host == host)


def _fit(link: Link) -> Step:
    """Plan a link whose packets fit into the tunnel, under the address known to the tunnels."""
    own = link.namespace
    change = _in(own, "ip", "link", "set", INTERFACE, "address", link.hardware_address, "mtu", str(TUNNEL_MTU))
    return Step(f"packets of {link.node} fit the tunnel", (change,))


def _tunnel(hub: str, here: Attachment, others: Mapping[str, tuple[Link, ...]], tunnel_id: int) -> Step:
    """Plan a tunnel. Its own end is in the hub's namespace and goes with it; packets to `others` use the host's
    network."""
    add = planned(
        "ip", "link", "add", _TUNNEL, ["mtu", str(TUNNEL_MTU)], ["netns", hub],
        ["type", "vxlan"], ["id", str(tunnel_id)], ["local", here.address], ["dstport", str(VXLAN_PORT)], "nolearning",
    )  # fmt: skip
    known = [(_EVERYBODY, address) for address in others]
    known += [(link.hardware_address, address) for address, links in others.items() for link in links]
    table = (_in(hub, "bridge", "fdb", "append", who, "dev", _TUNNEL, "dst", address) for who, address in known)
    join = _in(hub, "ip", "link", "set", _TUNNEL, "master", _BRIDGE, "up")
    return Step(f"tunnel to the other hosts, UDP port {VXLAN_PORT}", (add, *table, join))


def _plan_relayed(links: tuple[Link, ...], network: Network, mount_directory: str) -> PlannedNetwork:
    """Plan the relay, which creates the interfaces; they exist as long as it does."""
    pid_file = f"{mount_directory}/relay.pid"
    relay = Command(
        ("python3", "-I", "-", *_relay_options(network), "--device", INTERFACE, "--pid-file", pid_file,
         *(link.namespace for link in links)),
        stdin=_RELAY.read_text(encoding="utf-8"),
        cwd="/",
    )  # fmt: skip
    start = Step("relay between the nodes", (PlannedCommand.of(relay),))
    return PlannedNetwork(
        steps=(*(_make(link.node, link.namespace) for link in links), start, *map(_join_relay, links)),
        links=links,
        checks=(
            *(LinkCheck(link, render_queue(Network())) for link in links),
            RelayCheck(pid_file, network),
            *_round_trips(links, network),
        ),
        hub=None,
    )


def _relay_options(network: Network) -> tuple[str, ...]:
    rate = _bytes_per_s(network)
    return ("--delay-ms", f"{network.delay_ms:.15g}", "--loss", f"{network.loss:.6g}", "--bytes-per-s", f"{rate:.15g}")


def _bytes_per_s(network: Network) -> float:
    """Return the rate; 0 without a limit."""
    return 125_000 * (network.bandwidth_mbit or 0.0)


def _join_relay(link: Link) -> Step:
    own = link.namespace
    return Step(
        f"link of {link.node}",
        (
            _in(own, "ip", "link", "set", "lo", "up"),
            _in(own, "ip", "address", "add", f"{link.address}/{_PREFIX_BITS}", "dev", INTERFACE),
            _in(own, "ip", "link", "set", INTERFACE, "mtu", str(RELAY_MTU), "up"),
        ),
    )


def _round_trips(links: tuple[Link, ...], network: Network) -> tuple[RoundTripCheck, ...]:
    return (RoundTripCheck(links, network.delay_ms),) if network.delay_ms else ()


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
    """Plan a pair of interfaces, each created in its namespace; the bridge's end is named after the node."""
    address = f"{link.address}/{_PREFIX_BITS}"
    own = link.namespace
    # asked for in its own namespace: Linux 6.1 refuses a name that the asking one has, and hosts have an eth0
    pair = _in(own, "ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", link.node, "netns", hub)
    return Step(
        f"link of {link.node}",
        (
            pair,
            _in(hub, "ip", "link", "set", link.node, "master", _BRIDGE, "up"),
            _in(own, "ip", "link", "set", "lo", "up"),
            _in(own, "ip", "address", "add", address, "dev", INTERFACE),
            *(_in(own, *words) for words in _plan_queue(network)),
            _in(own, "ip", "link", "set", INTERFACE, "up"),
        ),
    )


def _plan_queue(network: Network) -> Iterator[tuple[str, ...]]:
    """Return the queue of a link that is slower than the kernel's default."""
    add = ("tc", "qdisc", "add", "dev", INTERFACE, "root")
    rate = ("rate", f"{network.bandwidth_mbit:.15g}mbit") if network.bandwidth_mbit is not None else ()
    if holds_packets(network):
        delay = ("delay", f"{network.delay_ms:.15g}ms") if network.delay_ms else ()
        loss = ("loss", f"{100 * network.loss:.6g}%") if network.loss else ()
        yield (*add, "netem", *delay, *loss, *rate)
    elif rate:
        yield (*add, "tbf", *rate, "burst", str(BURST_BYTES), "latency", f"{LONGEST_QUEUE_MS}ms")


def holds_packets(network: Network) -> bool:
    """True if packets are delayed or dropped on their way."""
    return bool(network.delay_ms or network.loss)


def needs_relay(host: Host, stacks: Iterable[Stack]) -> bool:
    """True if a stack delays or drops packets and the host's kernel cannot."""
    networks = [stack.topology.network for stack in stacks if stack.topology is not None]
    return any(map(holds_packets, networks)) and not _has_netem(host)


def _in(namespace: str, *argv: str) -> PlannedCommand:
    return planned("nsenter", f"--net={namespace}", list(argv))


@dataclass(frozen=True)
class LinkCheck:
    """Checks that a node has only its own address and the loopback's, and its link the configured queue."""

    link: Link
    queue: str

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        def ask(*argv: str) -> str:
            return host.run(command("nsenter", f"--net={self.link.namespace}", list(argv))).stdout

        what = f"network {self.link.node}"
        queue = parse_queue(ask("tc", "-json", "qdisc", "show", "dev", INTERFACE))
        return (
            Attested(
                f"{what} addresses",
                f"127.0.0.1 {self.link.address}",
                " ".join(parse_addresses(ask("ip", "-json", "-4", "address", "show"))),
            ),
            Attested(f"{what} queue", self.queue, queue),
        )


@dataclass(frozen=True)
class RelayCheck:
    """Checks that the relay runs with the configured arguments."""

    pid_file: str
    network: Network

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        try:
            words = host.read_text(f"/proc/{host.read_text(self.pid_file)}/cmdline").split("\0")
        except FileNotFoundError:
            words = []
        asked = _relay_options(self.network)
        at = words.index(asked[0]) if asked[0] in words else 0
        actual = " ".join(words[at : at + len(asked)]) or "it does not run"
        return (Attested("network relay", " ".join(asked), actual),)


@dataclass(frozen=True)
class RoundTripCheck:
    """Checks that no round trip from the first node to any other is faster than twice the delay."""

    links: tuple[Link, ...]
    delay_ms: float

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        first, *others = self.links
        patience_s = RETRANSMITTED_S + 4 * self.delay_ms / 1000
        ask = Command(
            ("python3", "-I", "-", f"{patience_s:.3f}", *(link.address for link in others)),
            timeout_s=60.0 + round_trip.TRIES * len(others) * patience_s,
            stdin=Path(round_trip.__file__).read_text(encoding="utf-8"),
            cwd="/",
        )
        found = parse_round_trips(host.run(first.enter(ask)).stdout)
        return tuple(row for link in others for row in self.rows(link.node, found.get(link.address)))

    def rows(self, node: str, ms: float | None) -> Iterator[Attested]:
        least = f"at least {2 * self.delay_ms:g} ms"
        measured = "not answered" if ms is None else f"{ms:g} ms"
        holds = ms is not None and ms >= 2 * self.delay_ms * CLOCKS_AGREE
        yield Attested(f"network {node} round trip", least, least if holds else measured)
        yield told(f"network {node} measured round trip", measured)


@parser_of("the measurement of round trips")
def parse_round_trips(text: str) -> dict[str, float | None]:
    """Parse milliseconds by address; None without an answer."""
    return {str(address): None if ms is None else float(ms) for address, ms in json.loads(text).items()}


def render_queue(network: Network) -> str:
    """Render the configured queue in the form of `parse_queue`."""
    rate = f" {network.bandwidth_mbit * 125_000:.0f} B/s" if network.bandwidth_mbit is not None else ""
    if holds_packets(network):
        return f"netem {network.delay_ms:g} ms, loss {network.loss:.4g}{rate}"
    return f"tbf{rate}" if rate else "none"


@parser_of("ip -json address")
def parse_addresses(text: str) -> tuple[str, ...]:
    """Parse all addresses of a namespace."""
    return tuple(str(info["local"]) for interface in json.loads(text) for info in interface["addr_info"])


@parser_of("tc -json qdisc")
def parse_queue(text: str) -> str:
    """Describe the root queue of a link; `none` if the link has no queue."""
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
    """Return the host capabilities required by a stack's topology."""
    if stack.topology is None:
        return ()
    delay = (DELAY,) if holds_packets(stack.topology.network) else ()
    pooler = {None: (), "pgpool": (PGPOOL,), "pgbouncer": (PGBOUNCER,)}[stack.topology.pooler]
    tunnel = (TUNNEL,) if stack.far_hosts else ()
    return ("root", CLUSTER, *tunnel, *delay, *pooler)


def _links(host: Host, symbol: str, module: str) -> bool:
    """True if the kernel has a part of its network: built in, visible only in its symbols, or as a module."""
    known = command("grep", "--quiet", ["--word-regexp", symbol], "/proc/kallsyms")
    return host.run(known, check=False).exit_code == 0 or module_available(host, module)


def _kernel_links(symbol: str, *, module: str) -> Need:
    return kernel_has(lambda host: _links(host, symbol, module), module)


def _has_netem(host: Host) -> bool:
    return _links(host, "netem_enqueue", "sch_netem")


def _has_tap(host: Host) -> bool:
    return host.status("/dev/net/tun") is not None


def _no_namespace(host: Host) -> str | None:
    """The namespace goes with the command. A host without unshare(1) is reported as such."""
    made = host.run(command("unshare", "--net", "true"), check=False)
    if made.exit_code in (0, 127):
        return None
    return f"no network namespace can be made: {made.stderr.strip()}"


_NAMESPACES = Need(_no_namespace, advice=always("sysctl user.max_net_namespaces=1000; a container needs --privileged"))
_PGPOOL_ELSEWHERE: dict[Family, str] = dict.fromkeys(
    ("fedora", "rhel", "suse", "alpine", "arch", "unknown"),
    "install Pgpool-II 4.3 or later from the packages of its own project",
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
            _NAMESPACES,
            _kernel_links("veth_xmit", module="veth"),
            _kernel_links("br_dev_xmit", module="bridge"),
            _kernel_links("tbf_enqueue", module="sch_tbf"),
        ),
    ),
    Capability(
        TUNNEL,
        "join nodes on several hosts",
        (program("bridge", everywhere("iproute2")), _kernel_links("vxlan_xmit", module="vxlan")),
    ),
    Capability(
        DELAY,
        "delay and drop packets between nodes",
        (kernel_has(lambda host: _has_netem(host) or _has_tap(host), "sch_netem, nor tun for a relay"),),
    ),
    Capability(
        PGPOOL,
        "put Pgpool-II in front of a cluster",
        (replace(program("pgpool", {"debian": ("pgpool2",), "ubuntu": ("pgpool2",)}), advice=_PGPOOL_ELSEWHERE),),
    ),
    Capability(PGBOUNCER, "put PgBouncer in front of a cluster", (program("pgbouncer", everywhere("pgbouncer")),)),
)
