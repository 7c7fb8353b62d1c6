"""`ballast web`: the answers of `ballast view` as pages, under the identity of one kubeconfig."""
