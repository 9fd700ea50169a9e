# src/ports
