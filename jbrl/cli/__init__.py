"""The command line: `jbrl --help`."""
