"""Comparison of arrays, NumPy's or JAX's."""

import numpy as np


def close(actual, desired, rel=1e-12, abs=0.0):
    """Fail unless |actual - desired| <= abs + rel |desired| everywhere, and the shapes agree."""
    actual, desired = np.asarray(actual), np.asarray(desired)
    assert actual.shape == desired.shape, (actual.shape, desired.shape)
    np.testing.assert_allclose(actual, desired, rtol=rel, atol=abs)
