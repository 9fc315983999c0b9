"""`python -m jbrl` and the `jbrl` command."""

from jbrl.cli.app import app


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
