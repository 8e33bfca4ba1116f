"""What touches a node: artifacts, connection, transactions, reverts, deployments."""
