"""What pages ask the store: a module a page, and `store`, which holds the way to it.

A function asks a query of the store and shapes its answer for a page; what a page shows as a
number was computed by the store or here, never in the page.
"""
