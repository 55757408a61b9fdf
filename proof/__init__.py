"""The proof: that a task never has two holders and no record is ever lost, shown on the
real code. See docs/design/proof.md.
"""
