"""Local clusters of real node processes."""
