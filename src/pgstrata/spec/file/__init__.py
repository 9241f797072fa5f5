"""Campaign files: YAML in, a validated campaign out, every problem with its line."""
