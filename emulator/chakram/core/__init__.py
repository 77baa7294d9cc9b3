"""What is to be replayed: traces, schedules, programs, plans and records. Pure."""
