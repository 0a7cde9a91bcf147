"""An encoder for use alone, on a processor: weights laid out once as its libraries read them, no gradients."""
