"""Profiles of DCQCN parameters, each in a file with its sources, and vendor names."""
