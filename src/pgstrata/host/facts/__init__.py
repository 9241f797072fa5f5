"""Facts of a host: one fact is one command and one pure parser."""
