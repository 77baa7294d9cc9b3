"""A service that runs the experiments of a team: a queue, an API, and pages."""
