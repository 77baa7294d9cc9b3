"""Parts of traces: fewer ranks, fewer nodes, no names."""
