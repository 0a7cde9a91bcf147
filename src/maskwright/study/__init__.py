"""Studies: several recipes trained with equal spend, measured on the same text, compared with a baseline."""
