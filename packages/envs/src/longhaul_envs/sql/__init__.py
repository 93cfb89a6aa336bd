"""SQL: answer a question about a database by a query, after as many looks at it as needed."""

from longhaul_envs.registration import register

register("longhaul/SQL-v0", "longhaul_envs.sql.environment:SQL")
