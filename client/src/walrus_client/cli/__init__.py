"""The command line `walrus`: thin over `Client`, `TextClient` and `walrus_client.dev`."""
