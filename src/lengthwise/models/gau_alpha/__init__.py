"""GAU-alpha, Entropy Invariance's subject, which transformers does not have."""

from lengthwise.models.gau_alpha.configuration import FAMILY, GAUAlphaConfig
from lengthwise.models.gau_alpha.modeling import GAUAlphaForMaskedLM, GAUAlphaModel

__all__ = ["FAMILY", "GAUAlphaConfig", "GAUAlphaForMaskedLM", "GAUAlphaModel", "register"]


def register() -> None:
    """Tells transformers' Auto classes of the family. Only `lengthwise.models.load` does, when it meets such a checkpoint."""
    import transformers

    transformers.AutoConfig.register(FAMILY, GAUAlphaConfig, exist_ok=True)
    transformers.AutoModelForMaskedLM.register(GAUAlphaConfig, GAUAlphaForMaskedLM, exist_ok=True)
