"""maskwright: train, measure and ship your own encoder."""
