"""People's and programs' SQL over the store: one statement, fenced, in a process of its own.

`box.run_query` runs a statement, `cookbook` has the questions that people ask, `relations` says
which tables and views there are, and `fenced_role` makes the role that PostgreSQL needs.

This module imports nothing: the child process begins here, and must begin fast.
"""
