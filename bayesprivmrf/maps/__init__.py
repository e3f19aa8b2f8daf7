"""What a mechanism does to records once its noise is given: pure functions of records and a source of noise.

Mechanisms call them with the secure source, intervals by simulation with simulated records and a seeded one, so that
the simulated law is that of the very code that made the release. Nothing here protects anybody by itself.
"""
