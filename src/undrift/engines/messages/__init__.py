"""Messages and files of tensors: the format of their bytes, frames, and packets around them."""
