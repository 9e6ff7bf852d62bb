"""How the next token is constrained and proposed beyond plain sampling: grammars, drafts. Empty so
far: sampling is `engine/model/sampler.py`, and what can't be chosen comes to it as `SamplePlan.banned`."""
