"""Trial procedures and the scheduler; each reads like a table of contents.

`scheduler` runs a campaign block by block, `performance` one trial; `load`, `measure`, `space` are its chapters.
Imports everything above the wall, never `analyze` or `report`.
"""
