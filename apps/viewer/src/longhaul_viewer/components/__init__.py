"""What pages are made of: charts, tables, and blocks of escaped HTML."""
