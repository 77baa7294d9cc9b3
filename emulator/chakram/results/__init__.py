"""What a run records, and what follows from it. Pure."""
