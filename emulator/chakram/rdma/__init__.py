"""RDMA NICs: their verbs, counters and what they can send."""
