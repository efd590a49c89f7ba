"""How requests and replies travel: NVFlare, Flower."""
