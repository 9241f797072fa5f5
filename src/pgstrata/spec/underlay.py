"""Which addresses hosts of one cluster may reach each other by: what its nodes send is not encrypted."""

from __future__ import annotations

import ipaddress

PRIVATE = tuple(
    map(
        ipaddress.ip_network,
        ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "127.0.0.0/8",
         "fc00::/7", "fe80::/10", "::1/128"),
    )
)  # fmt: skip
"""RFC 1918, shared (RFC 6598), link-local and loopback; of IPv6 unique local (RFC 4193), link-local and loopback."""


def underlay_problem(text: str) -> str:
    """Why hosts must not reach each other by that address; empty where they may."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return f"{text!r} is no IP address"
    if any(address in network for network in PRIVATE if network.version == address.version):
        return ""
    return f"address {text} is public: WAL and the data would travel unencrypted"
