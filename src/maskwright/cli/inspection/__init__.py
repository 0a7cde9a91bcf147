"""Commands that describe recipes, machines and runs: one module each."""
