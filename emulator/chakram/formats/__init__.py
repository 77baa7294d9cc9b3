"""Readers of files from ASTRA-sim, ns-3, nccl-tests and PARAM. Pure functions."""
