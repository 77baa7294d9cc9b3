"""Pure functions for topologies: hosts, switches, links, addresses, common shapes."""
