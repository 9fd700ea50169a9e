# src/sandbox
