"""Per-rank trace graphs stored as columns. This package does no I/O."""
