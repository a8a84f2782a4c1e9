"""Executes and checks the workflows of .github on this machine: a runner, checkers, and rules of the house."""
