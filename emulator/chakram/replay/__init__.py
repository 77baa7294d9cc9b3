"""Walk a rank's program: what may start now, what a completion releases. Pure."""
