# SPDX-License-Identifier: Apache-2.0
"""Runs ovs-cost from a checkout, without building or installing anything:
"python3 python/ovs/cost doctor", or "python3 -m ovs.cost doctor"."""

import os
import sys

if not __package__:
    # Another "ovs" may be installed, with another "cost" or none.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[0] = os.path.dirname(os.path.dirname(here))
    import ovs                                  # noqa: E402
    if os.path.dirname(here) not in list(ovs.__path__):
        ovs.__path__.insert(0, os.path.dirname(here))

from ovs.cost import main                       # noqa: E402

sys.exit(main.main())
