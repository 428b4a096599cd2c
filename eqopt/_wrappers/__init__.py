"""Transformations that hold another one and decide when or where it acts."""
