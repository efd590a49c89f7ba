"""Many runs: methods compared, settings tuned, a method advised."""
