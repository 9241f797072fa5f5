"""The pages of docs/reference that are written from the program (`make docs`). No wheel holds them."""
