"""The checks that every backend of sandboxes is put to, one module for each kind of promise."""

from __future__ import annotations
