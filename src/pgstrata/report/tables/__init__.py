"""Tables of every report: one text for terminal, page and Markdown alike."""
