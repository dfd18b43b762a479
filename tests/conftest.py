"""Every test runs in 64 bits, with shapes checked against the annotations and warnings as errors."""

import one_core  # noqa: F401, I001  (first, as it says)
import gc
import os
from pathlib import Path

import pytest


def pytest_configure(config):
    """Import the package with its annotations checked, except in a process that only hands out tests to workers."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        gc.enable()
        return
    import jax
    import jax.monitoring
    from jaxtyping import install_import_hook

    import typechecker  # noqa: F401  (before the hook decorates anything)

    with install_import_hook("unlazy", "typechecker.check"):
        import unlazy.activations
        import unlazy.data
        import unlazy.flows
        import unlazy.losses
        import unlazy.networks
        import unlazy.probes  # noqa: F401

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.monitoring.register_event_duration_secs_listener(_compilations)


class Compilations:
    """Counts what XLA compiles, and tests."""

    def __init__(self):
        self.count = self.tests = 0

    def __call__(self, event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            self.count += 1


_compilations = Compilations()


@pytest.fixture
def compilations():
    _compilations.count = 0
    return _compilations


@pytest.fixture
def key():
    import jax

    return jax.random.key(2026)


# Tests that take seconds; `make test` leaves them to `make test-slow`.
SLOW = Path(__file__).with_name("slow.txt")


def pytest_addoption(parser):
    parser.addoption("--measure", metavar="FILE", help="append the CPU seconds and the name of every test to FILE")


def pytest_collection_modifyitems(items):
    slow = set(SLOW.read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    gc.freeze()  # modules and tests stay, and later collections need not visit them
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    before = os.times()[:4]  # of this process and its children
    result = yield
    if file := item.config.getoption("measure"):
        with open(file, "a", encoding="utf-8") as out:
            out.write(f"{sum(os.times()[:4]) - sum(before):.2f} {item.nodeid}\n")
    return result


_MAPS = Path("/proc/self/maps")
_ENOUGH = 20_000  # memory maps, of which Linux allows a process 65,530


def pytest_runtest_teardown(item, nextitem):
    """Let go of compiled functions in time: each keeps some memory maps, and XLA crashes where there are no more."""
    _compilations.tests += 1
    if _compilations.tests % 25 == 0 and _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > _ENOUGH:
        import jax

        jax.clear_caches()
        gc.collect()


def pytest_make_parametrize_id(config, val, argname):
    """Keep bytes out of test names: archives carry the time they were made at, and all workers must agree on names."""
    return argname if isinstance(val, bytes) else None
