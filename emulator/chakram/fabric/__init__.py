"""The network under test: topology, addresses, namespaces, shaping, probes."""
