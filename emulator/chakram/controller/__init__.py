"""The controller: plans a run, drives the agents, gathers the results."""
