"""What every test runs under."""

from hypothesis import settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("longhaul", deadline=None)
settings.load_profile("longhaul")
