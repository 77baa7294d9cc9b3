"""Pure functions that predict times: bound, ceiling, fair times and simulation."""
