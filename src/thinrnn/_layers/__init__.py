"""What thinrnn knows of each kind of layer: its neurons and the parameters that they own."""
