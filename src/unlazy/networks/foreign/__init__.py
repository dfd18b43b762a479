"""Models of other libraries as networks: one file per library, which is recognised by type and never imported first."""
