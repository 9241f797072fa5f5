"""Access control of the live view: it requires the token, an origin of this server, and a host name of this machine.

A page of another site must not read responses of this server, whatever name was made to resolve to it (DNS rebinding):
the Host header must name a loopback address, or the address of the connection itself. The token is compared in constant
time and logged nowhere.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
MOST_HEADER = 4096


def cookie_name(port: int) -> str:
    """Return the cookie's name, with the port: browsers keep cookies by host, and one machine may have two views."""
    return f"pgstrata_watch_{port}"


def is_own_host(host: str, address: str) -> bool:
    """Return True if a Host header names this machine; the port is not checked, because a tunnel may change it."""
    name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "")
    if port and not port.isdigit():
        return False
    bracketed = f"[{address}]" if ":" in address else address
    return name.lower() in LOOPBACK or name == bracketed


def is_own_origin(headers: Mapping[str, str]) -> bool:
    """Return True if a request comes from a page of this server, or from no page at all."""
    origin = headers.get("origin")
    if origin is not None and origin not in (f"http://{headers.get('host', '')}",):
        return False
    site = headers.get("sec-fetch-site", "none")
    # A link on another site may open the page itself; that site cannot read any of it.
    opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return site in ("none", "same-origin") or opened


def given_token(headers: Mapping[str, str], query: str, port: int) -> str:
    """Return the token in `Authorization: Bearer`, the cookie or the query; empty if there is none."""
    bearer = headers.get("authorization", "")
    if bearer.lower().startswith("bearer "):
        return bearer[len("bearer ") :].strip()
    try:
        cookie = SimpleCookie(headers.get("cookie", "")[:MOST_HEADER]).get(cookie_name(port))
    except CookieError:
        cookie = None
    return cookie.value if cookie is not None else query_token(query)


def query_token(query: str) -> str:
    return (parse_qs(query[:MOST_HEADER]).get("token") or [""])[0]


def is_token(given: str, token: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(errors="surrogatepass"), token.encode())
