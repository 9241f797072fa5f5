"""The live view of a campaign: reads its directory repeatedly, and serves it to browsers and to Prometheus.

It never writes and touches no host: the record is its only source. Imports `errors`, `spec`, `workload` (pgbench's
progress), `record`, `analyze` and `report`; nothing imports it but `cli`. Starlette, uvicorn and prometheus_client
belong to the extra `watch`, and are imported by `server` and `metrics` alone.
"""
