"""The pretext task. Lay text out, select tokens, replace them, and predict them.

Four rooms that never touch each other's business: `formats` (documents to instances), `masking` (which
tokens), `replacement` (by what), `objectives` (targets, head and loss).
"""
