"""Model files: containers (safetensors, GGUF), tensor names, and the local model store."""
