"""The loads: drivers behind one interface, and the rates of a medium by itself. Imports `errors`, `spec`, `host`."""
