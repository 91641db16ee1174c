"""What should I do with my model at my length, and will it help?"""

from lengthwise.evaluation.recommend.recommend import recommend

__all__ = ["recommend"]
