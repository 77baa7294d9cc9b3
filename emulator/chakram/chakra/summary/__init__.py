"""Statistics of a trace set."""
