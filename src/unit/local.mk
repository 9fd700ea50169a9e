# src/unit
