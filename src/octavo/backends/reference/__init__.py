"""Every op as its formula in numpy: slow, obviously right, and what the other backends are tested against."""
