"""Charts of page and picture files: rows to draw, series of runs, and the pictures themselves."""
