"""What a model can still do at a length: scores by task, method and length, how far it reaches, likelihoods."""
