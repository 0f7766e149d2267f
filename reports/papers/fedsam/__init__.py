"""The tables and figures of the FedSAM, FedASAM and SWA paper."""
