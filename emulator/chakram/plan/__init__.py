"""Plans: placement, queue pairs, transport settings and faults of a run. No I/O."""
