"""Records of a run, as rows of integers and as named objects. No I/O."""
