"""The report of logs of the Behaviour Suite."""
