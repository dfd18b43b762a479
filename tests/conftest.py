"""Every test runs in 64 bits, with shapes checked against the annotations and warnings as errors."""

import one_core  # noqa: F401, I001  (first, as it says)
from jaxtyping import install_import_hook

with install_import_hook("unlazy", "typechecker.check"):
    import unlazy.activations
    import unlazy.data
    import unlazy.flows
    import unlazy.losses
    import unlazy.networks
    import unlazy.probes  # noqa: F401

import jax
import jax.monitoring
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")


class Compilations:
    """Counts what XLA compiles."""

    def __init__(self):
        self.count = 0

    def __call__(self, event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            self.count += 1


_compilations = Compilations()
jax.monitoring.register_event_duration_secs_listener(_compilations)


@pytest.fixture
def compilations():
    _compilations.count = 0
    return _compilations


@pytest.fixture
def key():
    return jax.random.key(2026)


def pytest_make_parametrize_id(config, val, argname):
    """Keep bytes out of test names: archives carry the time they were made at, and all workers must agree on names."""
    return argname if isinstance(val, bytes) else None
