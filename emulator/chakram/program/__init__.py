"""Programs that ranks replay, lowered from traces. This package does no I/O."""
