"""Does what the plan says. Holds no policy."""
