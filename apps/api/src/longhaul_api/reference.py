"""The page at `/`: every address of the API with what it takes, made from its OpenAPI text.

FastAPI's own documentation page loads its script from another company's server; this
one is plain HTML, so that nothing leaves the machine.
"""

from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

__all__ = ["add_reference_page"]

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; color-scheme: light dark; }
code { font: 13px ui-monospace, monospace; }
h2 { margin: 1.8rem 0 .2rem; font-size: 1rem; }
p { margin: .2rem 0; }
td { padding: .1rem 1rem .1rem 0; vertical-align: top; }
"""


def add_reference_page(app: FastAPI) -> None:
    """Serve the page; call it after the routes, which it lists."""

    def reference() -> HTMLResponse:
        return HTMLResponse(_page(app.openapi()))

    app.add_api_route("/", reference, include_in_schema=False)


def _page(openapi: dict[str, Any]) -> str:
    info = openapi["info"]
    sections = "".join(
        _section(method, path, operation)
        for path, operations in openapi["paths"].items()
        for method, operation in operations.items()
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>"
        f"<style>{STYLE}</style><h1>{escape(info['title'])}</h1>"
        f"<p>{escape(info['description'])}</p>"
        f'<p>Machine-readable: <a href="openapi.json">openapi.json</a></p>{sections}</html>'
    )


def _section(method: str, path: str, operation: dict[str, Any]) -> str:
    parameters: list[dict[str, Any]] = operation.get("parameters", [])
    rows = "".join(
        f"<tr><td><code>{escape(parameter['name'])}</code></td>"
        f"<td>{escape(parameter.get('description', ''))}</td></tr>"
        for parameter in parameters
    )
    return (
        f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
        f"<p>{escape(operation.get('description', operation['summary']))}</p><table>{rows}</table>"
    )
