"""LoRA adapters (Hu et al., 2021): small additions to linear layers, chosen per sequence."""
