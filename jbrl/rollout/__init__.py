"""One agent, one environment, one lifetime: no files, no clocks."""
