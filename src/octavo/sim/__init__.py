"""Pure Python: an engine without a model. A runner over a simulated paged cache, and the gold model for it."""
