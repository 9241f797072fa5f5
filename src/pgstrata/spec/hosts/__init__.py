"""Hosts that a campaign names: addresses, inventories, lab machines."""
