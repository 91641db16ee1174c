"""Methods that say where a key stands, which keys a row sees, and what a distance adds: rotation, visible and bias slots."""
