"""The same program on a virtual fabric with a virtual clock."""
