#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file-system tests on the kernel of Debian bookworm, Linux 6.1; see kernels.py."""
import sys

import kernels

sys.exit(kernels.run('bookworm'))
