"""The manifests of `deploy/kubernetes`, applied to an API server of their own."""
