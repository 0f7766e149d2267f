"""The tables and figures of the FedVSSAM paper."""
