# src/monitor
