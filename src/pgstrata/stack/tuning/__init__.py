"""Kernel settings: sysctl, block queues, transparent huge pages."""
