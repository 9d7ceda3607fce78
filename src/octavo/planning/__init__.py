"""What can be known without running a model: how much of it fits, and how it would do under a load."""
