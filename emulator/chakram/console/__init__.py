"""Results as text: terminal tables, nccl-tests output, summaries as JSON."""
