"""The control protocol between controller and agents."""

import os

# gRPC writes to stderr what it tells us anyway, and what we say in a sentence; it reads
# this when it is imported, which only modules of this package do.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
