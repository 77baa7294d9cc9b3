"""What a trace set holds, in numbers."""
