"""The program that lives in the sandbox: it serves file calls, starts commands and watches over them.

Its modules import only what costs a fresh interpreter next to nothing, because every sandbox pays for it. They are
compiled on the outside and sent in (`canonical.sandbox.local.program`), so nothing of this package is visible inside.
"""
