"""Small planted defects, and which of them no test notices (docs/reliability.md)."""
