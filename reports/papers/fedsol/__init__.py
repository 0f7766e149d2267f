"""The tables and figures of the FedSoL paper."""
