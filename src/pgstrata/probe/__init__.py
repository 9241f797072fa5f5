"""Samples taken beside the workload: devices, CPU, memory, pressure, PostgreSQL. Imports `errors`, `spec`, `host`."""
