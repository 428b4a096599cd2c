"""What a transformation is, and the seams that all share."""
