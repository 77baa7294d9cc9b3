"""Results as text: terminal tables, output of nccl-tests, summaries as JSON."""
