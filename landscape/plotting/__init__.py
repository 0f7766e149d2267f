"""Pictures of results: one style for library users and reports. Imports no torch."""
