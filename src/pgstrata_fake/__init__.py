"""Made-up trials, for tests, benchmarks and PGSTRATA_FAKE=1. A part of the checkout, never of what is installed.

May import everything of `pgstrata`, which imports it in one place: where the command line chooses its runner.
"""
