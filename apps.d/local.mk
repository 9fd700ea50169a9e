# apps.d
