"""Execution of a run: state machine, session with the agents, observers."""
