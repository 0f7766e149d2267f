"""The tables and figures of the FedGloSS paper."""
