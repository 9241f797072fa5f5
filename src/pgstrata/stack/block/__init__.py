"""Devices and block layers, one module a kind."""
