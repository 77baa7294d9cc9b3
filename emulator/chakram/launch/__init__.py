"""Start of agents on the hosts of a run, by the launchers that clusters have."""
