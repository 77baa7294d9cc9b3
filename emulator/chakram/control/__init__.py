"""The control protocol between controller and agents."""
