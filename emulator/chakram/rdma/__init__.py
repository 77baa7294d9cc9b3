"""RDMA NICs: their verbs, counters and measured rates."""
