"""The door to Kubernetes. Only `official` knows a client library."""
