"""Floor 1: the pretext task. Lay text out, choose what is hidden, hide it, and ask for it back.

Four rooms that never touch each other's business: `formats` (documents to instances), `masking` (which
tokens), `replacement` (by what), `objectives` (targets, head and loss).
"""
