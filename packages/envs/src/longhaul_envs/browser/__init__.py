"""The browser that web environments play in: a real Chromium, fenced in. No environment itself."""
