"""The control protocol between the controller and its agents."""

import os

# Chakram reports gRPC errors itself, so disable gRPC's own output to stderr. gRPC reads
# this variable when it is imported, and only modules of this package import gRPC.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
