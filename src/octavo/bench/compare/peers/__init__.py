"""Adapters: scripts that run in a peer's own interpreter and import nothing of octavo. The files beside them that they
share are imported as neighbours, which is also how this package's own contender reaches them."""
