"""Filesystems and pools, one module a kind."""
