"""Token shards: writing and reading."""
