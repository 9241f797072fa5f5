"""Pure statistics of recorded runs: one statistic per file, with formula, reference and tests.

Imports `errors`, `spec` and the types and reader of `record`; nothing that touches a host.
"""
