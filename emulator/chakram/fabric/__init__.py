"""The network under test: fabric types, labs, modeled switches, captures and probes."""
