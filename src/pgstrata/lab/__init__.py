"""QEMU machines that supply hosts whose kernel has everything. Imports `errors`, `spec`, `host`.

An image is built once (`image`), a machine is an overlay of it with data disks of its own (`machine`), and to the
rest of pgstrata a running machine is nothing but a host over ssh (`session`).
"""
