"""Short notation of stacks and clusters, read and written."""
