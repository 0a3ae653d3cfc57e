"""The images and compose file of `deploy/`, built and run by a real engine: `make images`."""
