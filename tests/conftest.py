"""What all tests share: how hard Hypothesis tries. Ape is not imported here; fast tests run without it.

MELETE_HYPOTHESIS_PROFILE chooses: `quick` for every day, `ci` for a pull request, `deep` for a night.
"""

import os

from hypothesis import HealthCheck, settings

# No test is timed. A fixture that lasts for all examples of a test is right here: within `@given` tests only ask
# a node (`eth_call`), which changes nothing, and state machines clean up after themselves.
COMMON = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}

settings.register_profile("quick", max_examples=30, stateful_step_count=25, **COMMON)
settings.register_profile("ci", max_examples=150, stateful_step_count=50, **COMMON)
settings.register_profile("deep", max_examples=5_000, stateful_step_count=120, **COMMON)
settings.load_profile(os.environ.get("MELETE_HYPOTHESIS_PROFILE", "quick"))
