"""The proof that workspaces and landing lose no work and land each task once.

`scene` makes a repository with tasks, `crew` runs real workers on it and disturbs them,
`person` works in the same repository, and `checker` reads the repository afterwards.
"""
