"""Speed, always as a ratio to something run in the same minute: machines differ, and
noise hits both sides alike.
"""
