# src/sup
