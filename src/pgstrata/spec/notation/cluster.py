"""The word in front of a stack that makes a cluster of it: `cluster(3,ANY 1,remote_apply)/tmpfs`.

The first argument counts the nodes, the primary among them. The others are levels of synchronous_commit, `slots=off`,
`pooler=pgpool`, `stale_reads=5s`, `acknowledgements=5s`, `delay_ms=1`, `bandwidth_mbit=100`, `loss=1%`,
`catch_up_s=60`, `address=10.0.0.1`, or else synchronous_standby_names.
"""

from __future__ import annotations

from typing import Any, get_args

from pgstrata.errors import UsageError
from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.notation.tokens import split_call, split_top, unquote
from pgstrata.spec.stack import MOST_STANDBYS, Network, Topology

WORD = "cluster"
_EXAMPLE = "for example cluster(3,ANY 1,remote_apply)/tmpfs"
_LEVELS = get_args(get_args(Topology.model_fields["synchronous_commit"].annotation)[0])
_OWN = ("slots", "catch_up_s", "pooler", "stale_reads", "acknowledgements", "address")
_KEYS = (*_OWN, *Network.model_fields)


def split_cluster(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return what the word in front says of the topology, None if there is no such word, and the volume behind it."""
    name, arguments, rest = split_call(text.strip())
    if name != WORD:
        return None, text
    if arguments is None or not rest.startswith("/"):
        raise UsageError(f"{text!r} does not say how many nodes sit on what", hint=_EXAMPLE)
    count, *words = split_top(arguments, ",")
    if not count.isdigit() or not 1 <= int(count) <= MOST_STANDBYS + 1:
        most = MOST_STANDBYS + 1
        raise UsageError(f"{count!r} in {text!r} is no number of nodes: a cluster has 1 to {most}", hint=_EXAMPLE)
    topology: dict[str, Any] = {"standbys": [{} for _ in range(int(count) - 1)]}
    for word in words:
        _take(topology, word, text)
    return topology, rest[1:]


def _take(topology: dict[str, Any], word: str, text: str) -> None:
    key, equals, value = word.partition("=")
    if equals:
        if key not in _KEYS:
            raise UsageError(f"{word!r} in {text!r} is nothing that a cluster has", hint=render_nearest(key, _KEYS))
        into = topology if key in _OWN else topology.setdefault("network", {})
        into[key] = value
    elif word in _LEVELS:
        topology["synchronous_commit"] = word
    elif "synchronous_standby_names" in topology:
        raise UsageError(f"{text!r} has synchronous_standby_names twice: {word!r}", hint=_EXAMPLE)
    else:
        topology["synchronous_standby_names"] = unquote(word)


def render_cluster(topology: Topology) -> str:
    """The word in front."""
    words = [str(len(topology.standbys) + 1)]
    quorum = topology.quorum
    if quorum is not None:
        words.append(quorum.text.removesuffix(" (*)"))
    words += [topology.synchronous_commit] if topology.synchronous_commit else []
    words += [] if topology.slots else ["slots=off"]
    words += [f"pooler={topology.pooler}"] if topology.pooler else []
    words += [f"stale_reads={topology.stale_reads:.15g}s"] if topology.stale_reads else []
    words += [f"acknowledgements={topology.acknowledgements:.15g}s"] if topology.acknowledgements else []
    words += [f"address={topology.address}"] if topology.address else []
    network = topology.network
    words += [f"{name}={value:.15g}" for name, value in network if value]
    catch_up_s = topology.catch_up_s
    words += [] if catch_up_s == Topology.model_fields["catch_up_s"].default else [f"catch_up_s={catch_up_s:.15g}"]
    return f"{WORD}({','.join(words)})/"
