"""Parameter sweeps: runner, cells on disk and result tables."""
