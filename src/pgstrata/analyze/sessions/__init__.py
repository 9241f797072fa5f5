"""Comparison of several campaigns: two sessions, or a stack over months."""
