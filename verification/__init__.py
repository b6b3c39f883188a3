"""The precision report, benchmarks and the test suite."""
