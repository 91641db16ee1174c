"""Every length method on real models with rotary positions, in one table."""
