"""kopf, used as what it is best at: an event source."""
