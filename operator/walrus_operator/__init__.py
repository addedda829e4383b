"""Keeps Kubernetes objects as a WalrusCluster says: observe, desire, plan, act, status."""

__version__ = "0.1.0"
