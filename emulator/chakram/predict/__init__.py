"""Time predictions: bound, ceiling, fair times and simulation. Pure functions."""
