"""The record of a campaign: one immutable directory a trial, raw output first, Parquet and JSON beside it.

`schema` holds the types, `decision` the seam between scheduler and statistics, `recorder` writes (online side),
`reader` reads (offline side). Imports `errors` and `spec` alone, so that a campaign directory opens anywhere.
"""
