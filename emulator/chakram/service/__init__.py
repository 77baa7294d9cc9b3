"""Service that runs the experiments of a team, with a queue, an API and web pages."""
