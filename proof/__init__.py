"""The proof, on the real code, that a task never has two holders and no record is ever
lost. See docs/design/proof.md.
"""
