"""What the tests on Kubernetes share: kubectl, a pod to work from, clusters of brokers as Kubernetes shows them."""
