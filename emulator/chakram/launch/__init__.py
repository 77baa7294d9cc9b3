"""Start agents on the hosts of a run, with ssh and cluster launchers."""
