"""Measurements: of the scheduler alone, of decoding in this process, and of a server under load."""
