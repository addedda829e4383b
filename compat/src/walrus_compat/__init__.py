"""Clients of Kafka, unmodified, against clusters of real nodes: which feature works with which client."""
