"""Fit specs to a budget, a corpus and a machine: rules, budgets, FLOPs."""
