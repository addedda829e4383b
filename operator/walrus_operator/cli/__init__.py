"""`kubectl walrus`, which is `walrus k8s`: what people ask of clusters on Kubernetes, with their own rights."""
