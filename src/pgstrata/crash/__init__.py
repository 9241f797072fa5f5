"""Crash trials: a ledger is written to a stack on a recorded disk, and PostgreSQL is recovered in states that a power
cut could have left. May import what a trial may, and `trial`."""
