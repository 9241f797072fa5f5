"""The live view of a campaign: reads its directory again and again, and shows it to browsers and to Prometheus.

Never writes, and touches no host: what it knows is what the record says. Imports `errors`, `spec`, `workload`
(pgbench's progress), `record`, `analyze` and `report`; nothing imports it but `cli`. Starlette, uvicorn and
prometheus_client belong to the extra `watch`, and are imported by `server` and `metrics` alone.
"""
