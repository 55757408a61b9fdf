"""Presets: how to start coding agents, and how to read their output."""
