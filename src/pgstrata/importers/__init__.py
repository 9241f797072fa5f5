"""Other people's results in: CSV, the pg-fs-benchmark layout, pgbench's own output, each as a campaign directory.

Nothing is invented on the way: what a source does not tell stays empty, what is left out is counted by reason.
Imports `errors`, `spec`, `record` and the parsers of `workload`; touches no host.
"""
