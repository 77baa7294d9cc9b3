"""The control protocol between controller and agents."""

import os

# Chakram reports gRPC errors itself, so disable gRPC's own output to stderr. gRPC reads
# this variable at its import, and only modules of this package import gRPC.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
