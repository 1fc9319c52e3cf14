#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file-system tests on the kernel of Debian trixie, Linux 6.12; see kernels.py."""
import sys

import kernels

sys.exit(kernels.run('trixie'))
