"""unlazy: a library for people who study how neural networks learn features.

The pipeline is data -> network -> flow -> trajectory -> probes -> panel -> figure and report.

    import jax, unlazy

    data = unlazy.data.random_labels(n=20, key=jax.random.key(0))
    network = unlazy.TwoLayer(width=1024, inputs=20, scaling=unlazy.mean_field, key=jax.random.key(1))
    run = unlazy.GradientFlow()(network, data, times=[0, 100, 1000], probes=[unlazy.TrainLoss()])
    run.observed["train-loss"]
"""

from typing import TYPE_CHECKING

# Packages, and the names of each that are offered here, all imported when they are first used: `unlazy --help` must not
# wait for JAX.
_NAMES = {
    "activations": "",
    "data": "Dataset",
    "networks": "TwoLayer ConvNet MeanFieldStack TangentModel Identity Quadratic RandomLayers Infinite Scaling "
    "mean_field ntk multilayer_mean_field asymmetrical Zipf wrap",
    "kernels": "",
    "losses": "Squared CrossEntropy Logistic",
    "flows": "GradientFlow Descent Exponential RungeKutta Stabilised Linearised Trajectory Status Recorder",
    "probes": "TrainLoss TestLoss FeatureMovement WeightMovement Kernel",
    "theory": "",
    "lab": "Lab Recipe diagnose",
    "figures": "",
    "papers": "",
    "report": "",
    "testing": "",
}
_HOMES = {name: f"unlazy.{package}" for package, names in _NAMES.items() for name in names.split()}

if TYPE_CHECKING:
    __version__: str
    from unlazy import (
        activations,
        data,
        figures,
        flows,
        kernels,
        lab,
        losses,
        networks,
        papers,
        probes,
        report,
        testing,
        theory,
    )
    from unlazy.data import Dataset
    from unlazy.flows import (
        Descent,
        Exponential,
        GradientFlow,
        Linearised,
        Recorder,
        RungeKutta,
        Stabilised,
        Status,
        Trajectory,
    )
    from unlazy.lab import Lab, Recipe, diagnose
    from unlazy.losses import CrossEntropy, Logistic, Squared
    from unlazy.networks import (
        ConvNet,
        Identity,
        Infinite,
        MeanFieldStack,
        Quadratic,
        RandomLayers,
        Scaling,
        TangentModel,
        TwoLayer,
        Zipf,
        asymmetrical,
        mean_field,
        multilayer_mean_field,
        ntk,
        wrap,
    )
    from unlazy.probes import FeatureMovement, Kernel, TestLoss, TrainLoss, WeightMovement

__all__ = [
    "ConvNet",
    "CrossEntropy",
    "Dataset",
    "Descent",
    "Exponential",
    "FeatureMovement",
    "GradientFlow",
    "Identity",
    "Infinite",
    "Kernel",
    "Lab",
    "Linearised",
    "Logistic",
    "MeanFieldStack",
    "Quadratic",
    "RandomLayers",
    "Recipe",
    "Recorder",
    "RungeKutta",
    "Scaling",
    "Squared",
    "Stabilised",
    "Status",
    "TangentModel",
    "TestLoss",
    "TrainLoss",
    "Trajectory",
    "TwoLayer",
    "WeightMovement",
    "Zipf",
    "activations",
    "asymmetrical",
    "data",
    "diagnose",
    "figures",
    "flows",
    "kernels",
    "lab",
    "losses",
    "mean_field",
    "multilayer_mean_field",
    "networks",
    "ntk",
    "papers",
    "probes",
    "report",
    "testing",
    "theory",
    "wrap",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import version

        return version("unlazy")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _NAMES:
        return import_module(f"unlazy.{name}")
    raise AttributeError(f"module 'unlazy' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
