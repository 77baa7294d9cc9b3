"""The data plane of a shard: ports, their sockets and the main loop."""
