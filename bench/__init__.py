"""Measure speed as a ratio of two programs that run in the same minute: machines
differ, and noise slows both programs alike.
"""
