"""Switch model: buffers, marking, pauses, scheduling, ECMP and link faults. No I/O."""
