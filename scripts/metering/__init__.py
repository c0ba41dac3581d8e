"""Parts of scripts/meter-bench: the model (origin), the peers that meter it, and the calls of customers."""
