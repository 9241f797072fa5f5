"""Statistics of numbers: one per file, with formula and reference; they know nothing of records."""
