"""What is seen of a run: metrics, results and reports."""
