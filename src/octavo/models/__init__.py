"""One file per forward structure, and the registry from a checkpoint's config to the model that runs it."""
