# src/net
