"""Programs of ranks: from traces, matched and ordered, to what is replayed. Pure."""
