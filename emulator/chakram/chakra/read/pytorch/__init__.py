"""Reader for PyTorch host execution traces, without a converter."""
