"""Methods that say how a query and a key are compared: the similarity slot."""
