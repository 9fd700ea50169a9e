# src
