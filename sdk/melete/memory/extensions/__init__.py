"""The optional records beside a registry: deletion attestations, audit grants, space descriptors.

`grants` and `events` are pure. `deletion`, `audit` and `descriptor` hold a client each, all built on `record`.
"""
