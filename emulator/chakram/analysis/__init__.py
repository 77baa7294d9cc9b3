"""Analysis of results: critical paths, causes, comparisons, gates, interference."""
