"""What a unit of work costs: estimates, short runs that calibrate them, and the report of both."""
