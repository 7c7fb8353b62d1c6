"""`python -m tests.support.login`: build OAuth2 Proxy and an OpenID provider for the tests."""

from tests.support.login import build

if __name__ == "__main__":
    print(f"login: {build()}")
