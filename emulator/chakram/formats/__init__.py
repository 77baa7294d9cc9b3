"""Pure functions that read files from ASTRA-sim, ns-3, nccl-tests and PARAM."""
