# src/policy
