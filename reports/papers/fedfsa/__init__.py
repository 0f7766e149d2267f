"""The tables and figures of the FedFSA paper."""
