"""Memory on record: the writes of a memory store, batch by batch, as transitions of a space.

    audit rows and contents -> operations -> batch -> delta -> outbox -> transition -> state root

The audit log of a store is what is recorded. `recorder` takes the rows that wait, keeps what opens them as witnesses
and hands one delta for each batch to the outbox; `evidence` shows the way from a memory to the state root; `rebuild`
makes a store of a verified history and its witnesses; `preflight` says which state of the space a backup is. What is
forgotten loses its witness, while its transition stands; `attesting` lets the space's controller say so on chain.
"""
