"""Executes one plan on any backend: row state, batch builder, KV arrays, sampling state."""
