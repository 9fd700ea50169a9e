# src/init
