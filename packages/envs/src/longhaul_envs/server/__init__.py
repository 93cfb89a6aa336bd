"""Serves environments over HTTP (`trainer serve-env`); see docs/guides/environment_server.md.

From the outside in: `app` speaks HTTP, `table` keeps the sessions, `fleet` plays them in workers
that it replaces, and `workers` says what a worker is: processes of this machine, or another back
end. Other dialects reach the same `table` on ports of their own. It needs `longhaul-envs[server]`.
"""
