"""Log-in by OpenID Connect: authorization code with PKCE, at providers that the settings name."""
