"""Text: tokenizers, chat templates, incremental detokenization and stop strings. Neither numpy nor torch."""
