"""The canonical definition of an RL environment for language models, independent of any framework."""

from __future__ import annotations

import logging

# A library does not print: whoever runs it decides where its log goes.
logging.getLogger(__name__).addHandler(logging.NullHandler())
