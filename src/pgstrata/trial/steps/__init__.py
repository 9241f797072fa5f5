"""Steps of a trial, and the functions that carry them out."""
