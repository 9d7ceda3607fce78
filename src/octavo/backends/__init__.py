"""The op table (`ops`) and the backends that carry it out."""
