# tests/it
