"""The process boundary: the engine child, the pipe's messages, and the front end's client of it."""
