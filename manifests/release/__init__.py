"""What a release consists of: image, manifests, Helm chart, wheel, bill of materials, checksums."""
