"""PyTorch's host execution traces, read without a converter."""
