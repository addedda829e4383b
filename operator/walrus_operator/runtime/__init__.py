"""What keeps the loop going: queue, lease, Events, metrics, health."""
