"""Trial procedures and the scheduler; each reads like a table of contents. Imports everything above the wall, never `analyze` or `report`."""
