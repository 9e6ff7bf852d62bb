"""What the gateway itself costs: beside a bare relay, and beside LiteLLM where it is installed."""
