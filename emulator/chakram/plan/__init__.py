"""Plans: what runs where, over which ports and queue pairs, with which faults. Pure."""
