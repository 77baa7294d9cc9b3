"""Start of agents on the hosts of a run, by ssh and the launchers of clusters."""
