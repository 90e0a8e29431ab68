"""Pure Python: who owns which KV block, and what runs next. Imports neither numpy nor torch nor configuration."""
