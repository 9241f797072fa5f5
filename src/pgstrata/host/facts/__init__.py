"""Facts of a host: each is a command or file, and a pure parser of what it says.

`gather` collects them in words, `medium` names what a path lies on. Imports `errors`, `spec` and `host`.
"""

from pgstrata.host.facts.block import medium
from pgstrata.host.facts.gather import Facts, gather

__all__ = ["Facts", "gather", "medium"]
