"""The server asks nobody for a password, so it listens to nobody else."""

from __future__ import annotations

import pytest

from pgstrata.errors import PreflightError
from pgstrata.postgres.cluster import refuse_public_addresses


@pytest.mark.parametrize("addresses", ["", "localhost", "127.0.0.1, ::1"])
def test_this_host_alone(addresses: str) -> None:
    refuse_public_addresses(addresses)


@pytest.mark.parametrize("addresses", ["*", "0.0.0.0", "localhost,192.0.2.1", "::"])
def test_nothing_beyond(addresses: str) -> None:
    with pytest.raises(PreflightError, match="without passwords"):
        refuse_public_addresses(addresses)
