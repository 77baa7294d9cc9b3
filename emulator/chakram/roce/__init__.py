"""RoCEv2 without I/O: headers, queue pairs, congestion control. Pure."""
