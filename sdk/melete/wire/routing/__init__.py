"""What the router stands on: threads for each store, what is owed to a store, and copies of memories."""
