"""Parts that models share: they own weights and name buffers, and leave all arithmetic to the backend's ops."""
