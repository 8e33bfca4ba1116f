"""memorywire: a memory store of five operations over four memory types, with approval, audit and search.

    envelope  -> store -> one transaction: row, words, vector, audit entry

`envelope` and `schema` are the wire; `store` is where to start. Behind it: `operations`, `queue` and `deciding` write,
`recalling` reads; `words` and `search` say what a query means, `embedding` brings vectors; `approval` and `audit` say
who let something in, and whether it still is what it was. `engines` hides whether SQLite or PostgreSQL keeps it all.
"""
