# src/unit
# the table of secret places; guard.c of src/sandbox enforces it
UNIT_SECRETS_SOURCES = src/unit/secrets.c
