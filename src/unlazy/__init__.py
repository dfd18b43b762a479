"""unlazy: a library for people who study how neural networks learn features.

The pipeline is data -> network -> flow -> trajectory -> probes -> panel -> figure and report.

    import jax, unlazy

    data = unlazy.data.random_labels(n=20, key=jax.random.key(0))
    network = unlazy.TwoLayer(width=1024, inputs=20, scaling=unlazy.mean_field, key=jax.random.key(1))
    run = unlazy.GradientFlow()(network, data, times=[0, 100, 1000], probes=[unlazy.TrainLoss()])
    run.observed["train-loss"]
"""

# ruff: noqa: I001  (several names are imported in one line)
from typing import TYPE_CHECKING

from unlazy._listing import offered_lazily

# Packages, and some names of each, all imported when they are first used: `unlazy --help` must not wait for JAX.
if TYPE_CHECKING:
    __version__: str
    from unlazy import activations as activations, data as data, figures as figures, flows as flows, kernels as kernels
    from unlazy import lab as lab, losses as losses, networks as networks, papers as papers, probes as probes
    from unlazy import report as report, testing as testing, theory as theory
    from unlazy.data import Dataset as Dataset
    from unlazy.flows import Descent as Descent, Exponential as Exponential, GradientFlow as GradientFlow
    from unlazy.flows import Linearised as Linearised, Recorder as Recorder, RungeKutta as RungeKutta
    from unlazy.flows import Stabilised as Stabilised, Status as Status, Trajectory as Trajectory
    from unlazy.lab import Lab as Lab, Recipe as Recipe, diagnose as diagnose
    from unlazy.losses import CrossEntropy as CrossEntropy, Logistic as Logistic, Squared as Squared
    from unlazy.networks import ConvNet as ConvNet, Identity as Identity, Infinite as Infinite
    from unlazy.networks import MeanFieldStack as MeanFieldStack, Quadratic as Quadratic, RandomLayers as RandomLayers
    from unlazy.networks import Scaling as Scaling, TangentModel as TangentModel, TwoLayer as TwoLayer, Zipf as Zipf
    from unlazy.networks import asymmetrical as asymmetrical, mean_field as mean_field
    from unlazy.networks import multilayer_mean_field as multilayer_mean_field, ntk as ntk, wrap as wrap
    from unlazy.probes import FeatureMovement as FeatureMovement, Kernel as Kernel, TestLoss as TestLoss
    from unlazy.probes import TrainLoss as TrainLoss, WeightMovement as WeightMovement
else:
    __all__, _find, _ = offered_lazily(__name__, __file__)

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("unlazy")
        return _find(name)

    def __dir__() -> list[str]:
        return sorted([*__all__, "__version__"])
