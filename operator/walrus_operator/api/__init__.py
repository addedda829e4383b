"""The custom resource: its models, and what is generated from them."""
