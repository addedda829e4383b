"""What is told: status, conditions and events, derived from a look, a plan and what was done. Pure."""
