"""Metrics as their sources publish them: pure functions of gold and predicted values."""
