"""Private Frank-Wolfe: regressions of each variable on the others within an L1 ball."""
