"""The report page of a trace set."""
