"""The drivers of the clients for Python: `python -m walrus_compat.drivers.NAME COMMAND KEY=VALUE...`."""
