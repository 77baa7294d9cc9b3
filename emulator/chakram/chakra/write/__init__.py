"""From graphs to the files of traces."""
