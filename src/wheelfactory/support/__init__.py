"""What PyTorch supports: the torch releases on its ROCm indexes, and the matrix that is to list them."""
