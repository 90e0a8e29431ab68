"""The arithmetic seam: one small Backend protocol, and its implementations (`reference` is the specification)."""
