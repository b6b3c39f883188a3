"""Mutation testing: would the verifier notice if the kernel were wrong?"""
