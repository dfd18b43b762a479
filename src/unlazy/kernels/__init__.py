"""Empirical tangent kernels of any JAX function: whole, of one output, summed over outputs, or as an operator."""

from unlazy.kernels.empirical import Costs, kernel_costs, tangent_kernel
from unlazy.kernels.operator import leading_eigenvalues, tangent_product

__all__ = ["Costs", "kernel_costs", "leading_eigenvalues", "tangent_kernel", "tangent_product"]
