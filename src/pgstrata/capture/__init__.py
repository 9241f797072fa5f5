"""Captured loads: statements of a server's logs, and mixes made from pg_stat_statements.

May import `errors`, `spec` and `host`.
"""
