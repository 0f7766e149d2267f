"""Products with the Hessian and the Gauss-Newton matrix of a loss."""
