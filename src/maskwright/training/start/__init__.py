"""What a pretraining run starts from: text, speed, source models, first weights."""
