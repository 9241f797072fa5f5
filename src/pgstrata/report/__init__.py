"""Findings to terminal, HTML, JSON, Markdown, CSV and pictures. Imports `analyze`, `record`, `spec`, `errors`."""
