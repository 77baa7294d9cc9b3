"""What is wrong in traces, and what misleads."""
