"""The parts of the acceptance table: what is simulated, what is claimed, what must hold, and what must fail."""
