"""What is: Kubernetes' objects and the brokers' own answers, read anew for each pass."""
