"""The primitive transformations, by purpose."""
