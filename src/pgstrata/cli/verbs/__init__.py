"""One module per verb; heavy imports inside the verbs."""
