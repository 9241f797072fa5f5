"""The record of a campaign: one immutable directory a trial, raw output first, Parquet and JSON beside it.

`schema` holds the types, `recorder` writes (online side), `reader` reads (offline side). `schema` and `reader`
import `errors` and `spec` alone, so that a campaign directory opens anywhere.
"""
