"""The loads that a workload can name: one module for what can be asked of each. Imports `errors` and `spec`."""
