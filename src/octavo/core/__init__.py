"""The engine's heart: requests, blocks, the scheduler and the loop. Pure standard library, no clock, no randomness."""
