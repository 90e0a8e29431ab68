"""The reference backend: pure numpy, written for reading. It is the specification of every op."""
