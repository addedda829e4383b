"""The cluster's metadata as a replicated state machine. Everything outside sees `store.MetadataStore` only."""
