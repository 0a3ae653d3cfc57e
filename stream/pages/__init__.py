"""What comes in: page messages, their bodies and encodings, and what has to be asked elsewhere for them."""
