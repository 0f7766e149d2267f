"""What drawings of the loss around and between models are made of."""
