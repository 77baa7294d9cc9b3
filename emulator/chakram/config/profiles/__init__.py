"""Named sets of DCQCN's parameters, one file each, with their sources."""
