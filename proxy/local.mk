# proxy
