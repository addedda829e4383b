"""What Kubernetes shall hold for a cluster. Pure: spec and facts in, manifests out."""
