"""What should I do with my model at my length, and will it help?"""
