"""How each kind of record becomes rows in a transaction; `StoreWriter` is the way in."""
