"""A study: from its file to units of work, and the loop that runs them."""
