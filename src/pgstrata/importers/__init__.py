"""Imports of other results: CSV, the pg-fs-benchmark layout, pgbench's own output, each as a campaign directory.

No data are invented: values missing from a source stay empty, and omitted items are counted by reason. Imports
`errors`, `spec`, `record` and the parsers of `workload`; touches no host.
"""
