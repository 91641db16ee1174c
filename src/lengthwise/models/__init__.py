"""Where loaded models keep the slots of the equation. Only this folder and `extend` know Hugging Face internals."""
