"""Cost of a unit of work: estimates, short runs that calibrate them, and the report of both."""
