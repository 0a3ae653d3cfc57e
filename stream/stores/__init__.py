"""Stores of whole files by name: directories, and buckets of S3, Google Cloud Storage and Azure."""
