"""SQL: answer a question about a database by a query, after as many looks at it as needed."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/SQL-v0",
    entry_point="longhaul_envs.sql.environment:SQL",
    disable_env_checker=True,  # the contract suite checks it
)
