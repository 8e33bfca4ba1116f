"""A memory store served to others: over HTTP to those who hold a token, and over MCP to the program that started it.

`tokens` knows who may ask for what, `http` is the application, `listening` the sockets and deadlines under it,
`mcp_server` the five operations as tools. What a server tells about an error is in `errors`.
"""
