"""Tensor storage formats: their sizes, how to slice them, and their reference dequantization."""
