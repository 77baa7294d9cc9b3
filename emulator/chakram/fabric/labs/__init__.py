"""Labs: fabrics of network namespaces on this machine."""
