"""The `octavo` command: one command per file. Heavy imports happen inside the commands, so help is quick."""
