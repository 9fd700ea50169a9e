# src/logs
