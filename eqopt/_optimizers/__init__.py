"""Named optimizers: recipes made of the primitives."""
