"""Renderers of findings: terminal, one offline HTML page, JSON, Markdown, CSV, pictures.

Nothing is judged here: every verdict and interval comes from `Findings`; what is drawn beside them (series, phases,
space) is read from the record, one run at a time. Imports `errors`, `spec`, `record` and `analyze` alone.
`render.render` is the entry.
"""
