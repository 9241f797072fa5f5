"""Prices that the user states, for the cost of transactions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pgstrata.spec.model import Model, Name


class Prices(Model):
    """Prices an hour of the host and of the devices below each stack."""

    currency: Name = Field(min_length=1, max_length=8, description="any text, as EUR or $; figures are not converted")
    host: float = Field(0.0, ge=0, description="an hour of the host")
    stacks: dict[str, Annotated[float, Field(ge=0)]] = Field(
        min_length=1, description="an hour of the devices of each stack, by its name; a stack left out has no cost"
    )
    rate: float | None = Field(
        None, gt=0, description="transactions a second to provide: the capacity stage then tells the cheapest stack"
    )

    def per_hour(self, stack: str) -> float | None:
        """Return the price of host and devices; None for a stack without a price."""
        own = self.stacks.get(stack)
        return None if own is None else self.host + own


def cost_of_million(per_hour: float, tps: float | None) -> float | None:
    """Return the price of 10^6 transactions, `per_hour / 3600 * 10^6 / tps`; None if the throughput is unknown."""
    return None if tps is None or not tps > 0 else per_hour / 3600 * 1e6 / tps
