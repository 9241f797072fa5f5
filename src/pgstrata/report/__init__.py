"""Renderers of findings: terminal, one offline HTML page, JSON, Markdown, CSV, pictures.

This package makes no judgement: every verdict and interval comes from `Findings`. Additional charts (series, phases,
space) are read from the record, one run at a time. Imports `errors`, `spec`, `record` and `analyze` alone. The entry is
`render.render`.
"""
