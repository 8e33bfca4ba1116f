"""The parts that `melete.chain.logs` reads a contract's events with."""
