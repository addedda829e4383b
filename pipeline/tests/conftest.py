"""What the tests of the Spark side share."""

from hypothesis import settings

# The machine is shared: how long one example takes says nothing.
settings.register_profile("walrus", deadline=None)
settings.load_profile("walrus")
