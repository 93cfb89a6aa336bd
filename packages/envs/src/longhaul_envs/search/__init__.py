"""Search: answer a question by searching a collection of documents."""

from longhaul_envs.registration import register

register("longhaul/Search-v0", "longhaul_envs.search.environment:Search")
