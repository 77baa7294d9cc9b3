"""Records of a run, as rows of integers and as named objects, without I/O."""
