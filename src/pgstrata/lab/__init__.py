"""QEMU machines that supply hosts whose kernel has everything. Imports `errors`, `spec`, `host`."""
