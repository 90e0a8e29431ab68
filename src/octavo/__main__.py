"""`python -m octavo` is the `octavo` command."""

from octavo.cli.main import main

if __name__ == "__main__":
    main()
