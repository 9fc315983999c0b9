"""Logs of the Behaviour Suite: reading, scoring, comparing. Nothing here plays."""
