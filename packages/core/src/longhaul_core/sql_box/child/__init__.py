"""The process that one statement runs in: the standard library, and psycopg for PostgreSQL."""
