"""The published comparisons: their campaigns and figures. Imports `errors` and `spec`."""
