"""Named sets of DCQCN's parameters, one file each with its sources; vendors' names."""
