"""Addresses by which hosts of one cluster may reach each other: what its nodes send is not encrypted."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

PRIVATE = tuple(
    map(
        ipaddress.ip_network,
        ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "127.0.0.0/8",
         "fc00::/7", "::1/128"),
    )
)  # fmt: skip
"""RFC 1918, shared (RFC 6598), link-local and loopback; of IPv6 unique local (RFC 4193) and loopback."""


def underlay_problem(text: str) -> str:
    """Return why hosts must not reach each other by that address; empty if they may."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return f"{text!r} is no IP address"
    if isinstance(address, ipaddress.IPv6Address) and (address.is_link_local or address.scope_id):
        return f"address {text} is of one interface: a tunnel has none to send by"
    if any(address in network for network in PRIVATE if network.version == address.version):
        return ""
    return f"address {text} is public: WAL and the data would travel unencrypted"


def mixed_families(addresses: Iterable[str]) -> str:
    """Return one address of IPv4 and one of IPv6, in words, if both are among the addresses; else empty."""
    by_version = {ipaddress.ip_address(text).version: text for text in addresses}
    return f"{by_version[4]} is of IPv4 and {by_version[6]} of IPv6" if len(by_version) > 1 else ""
