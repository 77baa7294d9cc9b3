"""The virtual switch: a pure model and the shell that gives it ports."""
