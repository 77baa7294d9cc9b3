"""Profiles of DCQCN parameters, one file each with its sources, and vendor names."""
