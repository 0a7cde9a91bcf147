"""The pretext task in four independent steps.

`formats` (documents to instances), `masking` (which tokens are predicted), `replacement` (by what they are replaced),
`objectives` (targets, head and loss).
"""
