"""From a recorded campaign to findings: which runs count, the conclusions from them, and the runs to do next."""
