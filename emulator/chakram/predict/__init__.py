"""What a run should take: ideal, ceiling, fair time, and the simulator. Pure."""
