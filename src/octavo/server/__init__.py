"""The HTTP side: routes, OpenAI wire types, event streams, metrics. Imports neither numpy nor torch."""
