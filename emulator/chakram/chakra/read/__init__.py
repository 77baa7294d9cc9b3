"""From the bytes of traces, whoever wrote them, to graphs."""
