"""How the next token is constrained and proposed beyond plain sampling (grammars, drafts). Empty so far: sampling
itself is `engine/model/sampler.py`, and masks come to it as `SamplePlan.banned`."""
